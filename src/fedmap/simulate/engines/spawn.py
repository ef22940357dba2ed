"""The engine that runs tasks in new processes on this machine, for systems and devices that a
forked process cannot use: macOS, Windows, CUDA."""

import multiprocessing
import pickle
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from fedmap import devices
from fedmap.errors import FedmapError
from fedmap.own_code import code_files, take_files
from fedmap.simulate.cluster import Packed, pack, unpack
from fedmap.simulate.engines.base import (
    ENGINES,
    between_looks,
    end,
    ending,
    failure,
    from_words,
    in_words,
    longest_first,
    refuse_late,
)
from fedmap.simulate.engines.fork import keep_memory
from fedmap.simulate.settings import Settings
from fedmap.simulate.store import StateStore
from fedmap.simulate.tasks import WITH_STATE, Reply, Setup, TaskName, do
from fedmap.values import Values

GUARD = (
    "a new process imports the script that starts it, so what the script does must stand below "
    'the line: if __name__ == "__main__":'
)


@ENGINES.add("spawn")
class SpawnEngine:
    """As many processes as the settings have workers. Each is given the settings and the federation
    once, and then one task after the other with the state of its client. The states stay in the
    store of this process. Where the device is of a kind that the machine has several of, the
    workers share them in turn."""

    def __init__(self, setup: Setup, store: StateStore) -> None:
        require_sendable(setup.settings)
        self._setup, self._store = setup, store
        self._pipes: list[Connection] = []
        self._processes: list[SpawnProcess] = []
        context = multiprocessing.get_context("spawn")
        for _ in range(setup.settings.workers):
            ours, other = context.Pipe()
            process = context.Process(target=_work, args=(other,), daemon=True)
            process.start()
            other.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._begin()

    def _begin(self) -> None:
        """Tell each worker what the run is. All start at the same time."""
        settings = self._setup.settings
        files, federation = code_files(settings.method, settings.net), pack(self._setup.federation)
        for worker in range(len(self._pipes)):
            own = {"device": devices.place(settings.device, worker)}
            self._send(worker, (settings.model_copy(update=own), files, federation))
        for worker in range(len(self._pipes)):
            kind, text = self._answer(worker)
            if kind != "ready":
                self.close()
                raise FedmapError(text)

    def ready(self) -> range:
        """Everybody."""
        return range(len(self._setup.federation))

    def map(self, task: TaskName, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        """Run one task for each key."""
        waiting = longest_first(self._setup, task, keys)
        sent = dict.fromkeys(range(len(self._pipes)), pack(down))  # once to each worker
        under_way: dict[int, int] = {}
        since: dict[int, float] = {}  # when each worker was given its task
        replies: dict[int, Reply] = {}
        while len(replies) < len(keys):
            # One task at a time: a worker reads nothing while it writes an answer.
            for worker in sorted(set(range(len(self._pipes))) - under_way.keys())[: len(waiting)]:
                key = waiting.pop(0)
                state = self._store[key] if task in WITH_STATE else {}
                under_way[worker], since[worker] = key, time.monotonic()
                self._send(worker, (task, round, key, sent.pop(worker, None), pack(state)))
            for worker in self._answered(under_way):
                key = under_way[worker]
                replies[key] = self._reply(worker, task, round, key)
                del under_way[worker]
            for worker, key in under_way.items():
                refuse_late(self._setup, task, round, key, since[worker])
        return [replies[key] for key in keys]

    def _answered(self, workers: dict[int, int]) -> list[int]:
        """Those that have answered, or ended, as soon as there is one; nobody where it is time to
        look at how long they take."""
        pipes, processes, patience = self._pipes, self._processes, between_looks(self._setup)
        things = [thing for w in workers for thing in (pipes[w], processes[w].sentinel)]
        ready = wait(things, patience)
        return [w for w in workers if pipes[w] in ready or processes[w].sentinel in ready]

    def _reply(self, worker: int, task: TaskName, round: int, key: int) -> Reply:
        """What came of a task. The state that the client leaves goes into the store."""
        kind, answer = self._answer(worker, task, round, key)
        if kind != "done":
            raise from_words(self._setup, kind, answer, task, round, key)
        reply: Reply = unpack(answer)
        if task == "train":
            self._store.put(key, round, reply.state)
        return reply._replace(state={})

    def _send(self, worker: int, what: Any) -> None:
        # An answer that does not come tells more.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._pipes[worker].send(what)

    def _answer(
        self, worker: int, task: TaskName | None = None, round: int = 0, key: int = 0
    ) -> tuple[str, Any]:
        try:
            kind, answer = self._pipes[worker].recv()
        except (EOFError, ConnectionResetError):
            how = ending(self._processes[worker])
            if task is not None:
                reason = f"its worker process {how}"
                raise failure(self._setup, task, round, key, reason) from None
            self.close()
            raise FedmapError(f"a worker process {how} before it could begin; {GUARD}") from None
        return kind, answer

    def close(self) -> None:
        """End the workers: they hold nothing that needs saving."""
        end(self._processes, self._pipes)


def require_sendable(settings: Settings) -> None:
    """Refuse a method or net of one's own that no other process could find."""
    try:
        pickle.dumps(settings)
    except (pickle.PicklingError, AttributeError, TypeError) as wrong:
        raise FedmapError(
            f"the engine spawn cannot send the method or net to its processes: {wrong}; write it "
            "at the top of a module, as a class or function with a name, or use the engine fork"
        ) from None


def refuse_within_a_start() -> None:
    """A process that is just being started imports the script of its parent."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise FedmapError(f"a run was begun while a worker process starts: {GUARD}")


def _work(pipe: Connection) -> None:
    """A worker's life: learn what the run is, do tasks, end when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    try:
        try:
            setup = _setup(*pipe.recv())
        except Exception as wrong:
            pipe.send(in_words(wrong))
            return
        pipe.send(("ready", ""))
        with setup.in_force():
            _do_tasks(setup, pipe)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass


def _setup(settings: Settings, files: dict[Path, bytes], federation: Packed) -> Setup:
    torch.set_num_threads(1)
    keep_memory()
    take_files(files)
    return Setup(settings, unpack(federation))


def _do_tasks(setup: Setup, pipe: Connection) -> None:
    down: Values = {}
    while True:
        task, round, key, sent, state = pipe.recv()
        try:
            down = down if sent is None else unpack(sent)
            pipe.send(("done", pack(do(setup, task, round, key, down, unpack(state)))))
        except (Exception, SystemExit) as wrong:
            pipe.send(in_words(wrong))
