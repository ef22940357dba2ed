"""Whole runs on the nodes of a Ray cluster, each on one core.

A run's folder stays at the driver. A node is sent its files, goes on with the run for a while, and
sends the files back: so the run can be stopped, resumed anywhere and seen at any time, nodes share
no disk with the driver, and what a node that dies has not sent back is done again."""

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmap import devices
from fedmap.errors import FedmapError
from fedmap.experiment.runs import RunWork
from fedmap.experiment.work import OnStep, Work
from fedmap.own_code import code_files, take_files
from fedmap.simulate.callbacks import Start, Told
from fedmap.simulate.cluster import (
    ON_ONE_CORE,
    Deaths,
    Packed,
    named_node,
    pack,
    places,
    require_versions,
    share_of_gpus,
    unpack,
    versions,
)
from fedmap.simulate.engines.base import in_words
from fedmap.simulate.engines.fork import keep_memory
from fedmap.simulate.folder import TRACK, RunFolder
from fedmap.simulate.progress import by_round, say_early_end
from fedmap.simulate.same import about
from fedmap.simulate.settings import FEDERATION, Settings

Files = dict[str, NDArray[np.uint8]]  # what is in a run's folder, by path
SECONDS = 20.0  # that a node works before it sends a folder back,
BYTES_A_SECOND = 5e6  # and longer for a large one, so that sending costs little beside the work
SECONDS_TO_END = 10.0  # that calls have to end, once nobody waits for them
COMMIT = "checkpoint/commit.json"
ELSEWHERE = {("checkpoint", "lock"), ("checkpoint", "new")}  # what does not travel
LAST = (COMMIT, "done", "diverged")  # the files that say that the others are whole
BEGUN = (COMMIT, "checkpoint/commit-before.json", "rounds.jsonl")  # those that say how far it is
ALONE = {"engine": "local", "workers": 1, "ray_address": None}


def spread(
    runs: Sequence[RunWork], root: Path, on_step: Callable[[Work], OnStep], ray: ModuleType
) -> None:
    """Do the runs, if there are as many as the cluster has cores. If there are fewer, their clients
    are the better unit: then nothing is done here."""
    how = runs[0].settings
    size = places(ray, how.ray_address, how.workers, how.device)
    if len(runs) < size:
        return
    travelers = [Traveler(run, root, on_step(run)) for run in runs]
    under_way: dict[Any, Traveler] = {}
    waiting, deaths = deque(travelers), Deaths()
    send = sender(ray, share_of_gpus(ray, how.device, size))
    try:
        while waiting or under_way:
            while waiting and len(under_way) < size:
                traveler = waiting.popleft()
                under_way[send(traveler)] = traveler
            (call,), _ = ray.wait(list(under_way))
            traveler = under_way.pop(call)
            files = returned(ray, call, traveler.run, deaths)
            if files is not None:
                traveler.take(files)
            if not traveler.home:
                waiting.appendleft(traveler)
    finally:
        end(ray, list(under_way))
        for traveler in travelers:
            traveler.unlock()


def end(ray: ModuleType, calls: list[Any]) -> None:
    """End calls that nobody waits for any more. A node whose driver leaves while a call ends keeps
    the memory of what the call was given, until there is none left."""
    for call in calls:
        ray.cancel(call, force=True)
    if calls:
        ray.wait(calls, num_returns=len(calls), timeout=SECONDS_TO_END)


def sender(ray: ModuleType, gpus: dict[str, float]) -> Callable[["Traveler"], Any]:
    """What sends a run on its way; runs of one federation share what is sent of it."""
    go_on_there = ray.remote(**ON_ONE_CORE, **gpus, max_retries=0)(go_on)
    federations: dict[str, Any] = {}

    def send(traveler: Traveler) -> Any:
        run, files = traveler.run, traveler.files()
        key = run.settings.model_dump_json(include=FEDERATION)
        if key not in federations:
            federations[key] = ray.put(pack(run.federation))
        there = ALONE | {"device": devices.kind(run.settings.device)}
        settings = run.resolved.model_copy(update=there)
        seconds = SECONDS + sum(content.nbytes for content in files.values()) / BYTES_A_SECOND
        code = code_files(settings.method, settings.net)
        given = (versions(), settings, code, federations[key])
        return go_on_there.remote(*given, files, seconds)

    return send


def returned(ray: ModuleType, call: Any, run: RunWork, deaths: Deaths) -> Files | None:
    """The files that a node sends back; nothing where it died."""
    try:
        kind, what = ray.get(call)
    except ray.exceptions.RayTaskError as wrong:  # not even its arguments could be read
        raise FedmapError(f"{run.label} failed on the Ray cluster:\n{wrong}") from None
    except ray.exceptions.RayError as wrong:
        deaths.one_more(wrong)
        return None
    if kind != "done":
        raise FedmapError(f"{run.label} failed:\n{what}" if kind == "traceback" else what)
    deaths.progress()
    files: Files = what
    return files


class Traveler:
    """A run whose folder is here, and whose rounds are done elsewhere."""

    def __init__(self, run: RunWork, root: Path, on_step: OnStep) -> None:
        self.run = run
        self._root = root
        self._on_step = on_step
        self._folder = RunFolder(root / run.name)
        self._lock = ExitStack()
        self._told = Told(run.callbacks())
        self._shown: int | None = None  # rounds that need not be shown any more

    @property
    def home(self) -> bool:
        """Is there nothing left to do?"""
        return self.run.done(self._root)

    def files(self) -> Files:
        """What to send. From the first time on, nobody else may work in the folder."""
        if self._shown is None:
            self._lock.enter_context(self._folder.locked())
        files = files_of(self._folder.path)
        if self._shown is None:
            before = rounds_of(files)
            self._shown = len(before)
            facts, rounds = about(self.run.federation), [json.loads(line) for line in before]
            self._told.start(Start(self.run.resolved, facts, self._folder.path, rounds))
        return files

    def take(self, files: Files) -> None:
        """Replace the folder's files. Killed in the middle of it, there is no commit, and the run
        begins again: there are never files of two different rounds."""
        path, new = self._folder.path, self._folder.checkpoint / "new"
        write_files(new, files)
        for name in BEGUN:
            (path / name).unlink(missing_ok=True)
        for old in self._folder.checkpoint.glob("server-*"):
            old.unlink()
        for name in sorted(files, key=lambda name: name in LAST):
            (path / name).parent.mkdir(exist_ok=True)
            os.replace(new / name, path / name)
        shutil.rmtree(new)
        rounds = rounds_of(files)
        for line in rounds[self._shown :]:
            self._told.round(json.loads(line))
            by_round(self._on_step)(json.loads(line))
        self._shown = len(rounds)
        if "diverged" in files:
            self._on_step(self.run.steps, "diverged")
        if "done" in files:
            say_early_end(self._on_step, self.run.steps, len(rounds))
        if "done" in files:
            self._told.end(self.run.result(self._root))
        if self.home:
            self.unlock()

    def unlock(self) -> None:
        """Leave the folder to others."""
        self._told.end(None)
        self._lock.close()


def files_of(folder: Path) -> Files:
    """What is in a run's folder."""
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        path.as_posix(): np.fromfile(folder / path, np.uint8)
        for path in paths
        if path.parts[:2] not in ELSEWHERE and path.parts[0] != TRACK
    }


def write_files(folder: Path, files: Files) -> None:
    """The same files elsewhere, brought to the disk."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with open(folder / name, "wb") as file:
            file.write(content.data)
            file.flush()
            os.fsync(file.fileno())


def rounds_of(files: Files) -> list[bytes]:
    """The lines of rounds.jsonl."""
    found = files.get("rounds.jsonl")
    return [] if found is None else found.tobytes().splitlines()


class EnoughError(Exception):
    """A node has worked long enough on a run; its last whole round is committed."""


def go_on(
    driver: dict[str, str],
    settings: Settings,
    own: dict[Path, bytes],
    federation: Packed,
    files: Files,
    seconds: float,
) -> tuple[str, Any]:
    """On a node: go on with a run for so many seconds, or to its end. Its files, or what
    `in_words` says."""
    end = time.monotonic() + seconds

    def on_step(step: int, now: str) -> None:
        if time.monotonic() > end and step < settings.rounds:
            raise EnoughError

    try:
        with named_node():
            require_versions(driver)
            keep_memory()
            take_files(own)
            run = RunWork(settings, federation=unpack(federation))
            name = run.name
        with TemporaryDirectory(prefix="fedmap-") as root:
            write_files(Path(root) / name, files)
            with suppress(EnoughError):
                run.go(Path(root), on_step)
            return "done", files_of(Path(root) / name)
    except Exception as wrong:
        return in_words(wrong)
