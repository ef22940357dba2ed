"""What an engine is: it runs the tasks of a round, somewhere. All engines give the same bits,
because no task depends on where or in which order it runs."""

import signal
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Protocol

from fedmap.client import in_round
from fedmap.errors import DivergenceError, FedmapError
from fedmap.registry import Registry
from fedmap.signals import ENDING
from fedmap.simulate.store import StateStore
from fedmap.simulate.tasks import WITH_STATE, Reply, Setup, TaskName, do
from fedmap.values import Values


class Engine(Protocol):
    """Runs one task for each key. Replies come in the order of the keys and are valid until the
    next call. The states that clients leave are in the store when a call returns. A reply with a
    reason stands for a client that could not be reached or failed, where that ends no run."""

    def ready(self) -> Sequence[int]:
        """The clients that can take part in a round now."""
        ...

    def map(self, task: TaskName, round: int, keys: Sequence[int], down: Values) -> list[Reply]: ...

    def close(self) -> None: ...


ENGINES: Registry[Callable[[Setup, StateStore], Engine]] = Registry("engine")


def do_and_keep(
    setup: Setup, store: StateStore, task: TaskName, round: int, key: int, down: Values
) -> Reply:
    """A task with the state that the client has kept. The one that it leaves goes from here into
    the store, whichever process this is: it counts once the round is committed."""
    reply = do(setup, task, round, key, down, store[key] if task in WITH_STATE else {})
    if task == "train":
        store.put(key, round, reply.state)
    return reply._replace(state={})


def longest_first(setup: Setup, task: TaskName, keys: Sequence[int]) -> list[int]:
    """The keys in the order to begin them: a long task that starts last would leave the other
    workers waiting."""
    if task == "evaluate":
        return list(keys)
    samples = setup.federation.sizes
    return sorted(keys, key=lambda key: -samples[key])


def failure(setup: Setup, task: TaskName, round: int, key: int, reason: str) -> FedmapError:
    """The sentence for a task that did not come to its end."""
    whose = "the pooled samples" if setup.method.pooled and task == "train" else f"client {key}"
    what = f"part {key} of the global test set" if task == "evaluate" else whose
    when = in_round(round, setup.settings)
    return FedmapError(f"{what} failed {when}:\n{reason.rstrip()}")


def failed(setup: Setup, task: TaskName, round: int, key: int) -> FedmapError:
    """The same, with the traceback of what is being handled."""
    return failure(setup, task, round, key, traceback.format_exc())


def refuse_timeout(setup: Setup, engine: str) -> None:
    """For an engine that cannot see how long a single client takes."""
    if setup.settings.client_timeout is not None:
        raise FedmapError(
            f"client_timeout is {setup.settings.client_timeout:g}, but the engine {engine} cannot "
            "watch a client's time; the engines fork and spawn can, which have worker processes of "
            "their own"
        )


def between_looks(setup: Setup) -> float | None:
    """Seconds after which to look again at how long a client takes; None without a limit."""
    limit = setup.settings.client_timeout
    return None if limit is None else min(limit / 4, 1.0)


def refuse_late(setup: Setup, task: TaskName, round: int, key: int, since: float) -> None:
    """End the run where a client has been at work for longer than it may."""
    limit = setup.settings.client_timeout
    if limit is not None and time.monotonic() - since > limit:
        raise failure(setup, task, round, key, late(limit))


def late(limit: float) -> str:
    """The reason where a client does not come back."""
    return f"nothing came back within {limit:g} s (client_timeout)"


def ending(process: BaseProcess) -> str:
    """How a process that is gone has ended."""
    process.join(5)
    code = process.exitcode
    if code is not None and -code in ENDING:
        time.sleep(0.5)  # it may be meant for all of us, and ours is on its way
    if code is not None and code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    return f"ended with exit code {code}"


def end(processes: Sequence[BaseProcess], pipes: Sequence[Connection]) -> None:
    """End worker processes at once, whatever they do."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
    for pipe in pipes:
        pipe.close()


def in_words(wrong: BaseException) -> tuple[str, str]:
    """What went wrong in a task, as two words for another process: the kind, and the text."""
    if isinstance(wrong, FedmapError):
        kind = "diverged" if isinstance(wrong, DivergenceError) else "sentence"
        return kind, str(wrong)
    return "traceback", "".join(traceback.format_exception(wrong))


def from_words(
    setup: Setup, kind: str, text: str, task: TaskName, round: int, key: int
) -> FedmapError:
    """The error that `in_words` told of."""
    if kind == "traceback":
        return failure(setup, task, round, key, text)
    return DivergenceError(text) if kind == "diverged" else FedmapError(text)
