"""Who else is told of a run: at its start, after each round and at its end. Callbacks look on; what
they do, and that they fail, changes nothing of the run."""

import sys
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from fedmap.errors import FedmapError
from fedmap.simulate.folder import Record
from fedmap.simulate.result import Result
from fedmap.simulate.settings import Settings


class Start(NamedTuple):
    """What is known of a run when it begins, or goes on."""

    settings: Settings
    federation: dict[str, Any]  # shape, classes, checksums, and the clients' names if they have any
    folder: Path | None  # where the run is kept; None where it goes with its result
    rounds: list[Record]  # those from before, where it goes on


class Callback:
    """One that is told of a run; a subclass says what it does. Of a run that was stopped, the next
    start tells the rounds from before."""

    def on_start(self, start: Start) -> None:
        """Before the first round. A FedmapError here refuses the run: nothing is lost yet."""

    def on_round(self, record: Record) -> None:
        """After a round, which is kept by now."""

    def on_end(self, result: Result | None) -> None:
        """At the end; None where the run was stopped before it."""


class Told:
    """Tells callbacks of one run. The first error of one is said, and it is told no more."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._waiting = list(callbacks)
        self._listening: list[Callback] = []

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        self.end(None)

    def start(self, start: Start) -> None:
        """The run begins, or goes on."""
        while self._waiting:
            callback = self._waiting.pop(0)
            self._listening.append(callback)
            self._tell(callback, "on_start", deepcopy_of(start))

    def round(self, record: Record) -> None:
        """A round is kept."""
        for callback in list(self._listening):
            self._tell(callback, "on_round", deepcopy(record))

    def end(self, result: Result | None) -> None:
        """The run has ended, or was stopped; nobody is told twice."""
        while self._listening:
            self._tell(self._listening[0], "on_end", result, last=True)

    def _tell(self, callback: Callback, what: str, about: object, last: bool = False) -> None:
        try:
            if last:
                self._listening.remove(callback)
            getattr(callback, what)(about)
        except Exception as wrong:
            if callback in self._listening:
                self._listening.remove(callback)
            if what == "on_start" and isinstance(wrong, FedmapError):
                raise
            say_failure(callback, what, wrong)


def deepcopy_of(start: Start) -> Start:
    """The same, in which a callback may change what it likes."""
    return start._replace(federation=deepcopy(start.federation), rounds=deepcopy(start.rounds))


def say_failure(callback: Callback, what: str, wrong: Exception) -> None:
    """One sentence for a callback that failed."""
    words = " ".join(str(wrong).split())
    print(
        f"fedmap: the callback {type(callback).__name__} failed in {what} "
        f"({type(wrong).__name__}: {words}); it is told no more of this run, which goes on without "
        "it",
        file=sys.stderr,
        flush=True,
    )
