"""The engine that runs tasks in forked processes on this machine, with one torch thread each."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import struct
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

import torch

from fedmap.errors import FedmapError
from fedmap.signals import ENDING
from fedmap.simulate.engines.base import (
    ENGINES,
    between_looks,
    do_and_keep,
    end,
    ending,
    failure,
    from_words,
    in_words,
    late,
    longest_first,
    refuse_late,
)
from fedmap.simulate.memory import Memory
from fedmap.simulate.store import StateStore
from fedmap.simulate.system import fcntl
from fedmap.simulate.tasks import Reply, Setup, TaskName
from fedmap.values import ALIGNMENT, Layout, Values

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess  # Windows has none

KEY = struct.Struct("<q")
NO_KEY = -1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of the C library's mallopt
PR_SET_PDEATHSIG = 1  # of Linux's prctl


@ENGINES.add("fork")
class ForkEngine:
    """As many forked processes as the settings have workers. They inherit data, method and store.
    What goes down lies in one shared memory, what comes back in one for each worker; only names,
    shapes and numbers go through the pipes, once a call. Workers take their tasks themselves, from
    a memory that has the keys, so that none waits for the parent. They also write the states that
    clients leave into the store themselves."""

    def __init__(self, setup: Setup, store: StateStore) -> None:
        if setup.device.type != "cpu" or not hasattr(os, "fork") or fcntl is None:
            raise FedmapError("the engine fork is for the CPU on Linux or macOS; choose spawn")
        self._setup = setup
        self._patience = between_looks(setup)
        self._down, self._keys = Memory(), Memory()
        self._outboxes = [Memory() for _ in range(setup.settings.workers)]
        self._pipes: list[Connection] = []
        self._processes: list[ForkProcess] = []
        context = multiprocessing.get_context("fork")
        for outbox in self._outboxes:
            ours, other = context.Pipe()
            self._pipes.append(ours)
            memories = (self._down, self._keys, outbox)
            arguments = (setup, store, os.getpid(), other, list(self._pipes), *memories)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            self._processes.append(process)
            other.close()

    def ready(self) -> range:
        """Everybody."""
        return range(len(self._setup.federation))

    def map(self, task: TaskName, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        """Run one task for each key."""
        layout = Layout.of(down)
        layout.write(down, self._down.room(layout.nbytes))
        order = longest_first(self._setup, task, keys)
        self._keys.offer(b"".join(KEY.pack(key) for key in order))
        for pipe, outbox in zip(self._pipes, self._outboxes, strict=True):
            KEY.pack_into(outbox.room(KEY.size), 0, NO_KEY)
            with contextlib.suppress(BrokenPipeError):  # the answer that does not come tells more
                pipe.send((task, round, layout))
        replies: dict[int, Reply] = {}
        working, since = dict(enumerate(self._pipes)), dict[int, tuple[int, float]]()
        while working:
            ends = [self._processes[worker].sentinel for worker in working]
            ready = wait([*working.values(), *ends], self._patience)
            for worker, pipe in list(working.items()):
                if pipe in ready:
                    replies |= {reply.key: reply for reply in self._receive(worker, task, round)}
                    del working[worker]
                elif self._processes[worker].sentinel in ready:
                    raise self._died(worker, task, round)
            for worker in working if self._patience else ():
                since[worker] = self._in_time(worker, task, round, since.get(worker))
        return [replies[key] for key in keys]

    def _receive(self, worker: int, task: TaskName, round: int) -> list[Reply]:
        try:
            kind, answer = self._pipes[worker].recv()
        except (EOFError, ConnectionResetError):
            raise self._died(worker, task, round) from None
        if kind != "done":
            raise from_words(self._setup, kind, answer, task, round, self._key(worker))
        return [self._read(worker, *one) for one in answer]

    def _read(
        self, worker: int, key: int, numbers: dict[str, float], places: list[tuple[Layout, int]]
    ) -> Reply:
        memory = self._outboxes[worker].room(places[-1][0].nbytes + places[-1][1])
        up, result, tally = (layout.read(memory, start) for layout, start in places)
        return Reply(key, numbers, up=up, result=result, tally=tally)

    def _key(self, worker: int) -> int:
        """What the worker has taken last in this call."""
        return int(KEY.unpack_from(self._outboxes[worker].room(KEY.size))[0])

    def _in_time(
        self, worker: int, task: TaskName, round: int, before: tuple[int, float] | None
    ) -> tuple[int, float]:
        """The key that a worker is at, and since when it has been seen there; refused if that is
        too long ago."""
        key, limit = self._key(worker), self._setup.settings.client_timeout
        if before is None or before[0] != key:
            return key, time.monotonic()
        if key != NO_KEY:
            refuse_late(self._setup, task, round, key, before[1])
        elif limit is not None and time.monotonic() - before[1] > limit:
            raise FedmapError(f"a worker process does not begin its work: {late(limit)}")
        return before

    def _died(self, worker: int, task: TaskName, round: int) -> FedmapError:
        how, key = ending(self._processes[worker]), self._key(worker)
        if key == NO_KEY:
            return FedmapError(f"a worker process {how} between two tasks")
        return failure(self._setup, task, round, key, f"its worker process {how}")

    def close(self) -> None:
        """End the workers: they hold nothing that needs saving."""
        end(self._processes, self._pipes)


def _work(
    setup: Setup,
    store: StateStore,
    parent: int,
    pipe: Connection,
    inherited: list[Connection],
    down: Memory,
    keys: Memory,
    outbox: Memory,
) -> None:
    """A worker's life: do tasks as long as there are keys, put tensors into the outbox and at last
    numbers into the pipe; end when the parent is gone."""
    for other in inherited:
        other.close()  # else the pipe's end would never be seen after the parent's death
    only_the_parent_stops()
    end_with(parent)
    torch.set_num_threads(1)
    keep_memory()
    try:
        while True:
            task, round, layout = pipe.recv()
            try:
                # The parent is done with what the last call left in the outbox.
                done, end = [], ALIGNMENT
                while (packed := keys.take(KEY.size)) and os.getppid() == parent:
                    outbox.room(KEY.size)[: KEY.size] = packed
                    values = layout.read(down.room(layout.nbytes))
                    (key,) = KEY.unpack(packed)
                    reply = do_and_keep(setup, store, task, round, key, values)
                    places, end = _put(outbox, end, reply)
                    done.append((key, reply.numbers, places))
                pipe.send(("done", done))
            except (Exception, SystemExit) as wrong:
                pipe.send(in_words(wrong))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        os._exit(0)  # no clean-up of what belongs to the parent


def _put(outbox: Memory, end: int, reply: Reply) -> tuple[list[tuple[Layout, int]], int]:
    """Write a reply's tensors into the outbox; where they lie, and where the next ones may."""
    places = []
    for values in (reply.up, reply.result, reply.tally):
        layout = Layout.of(values)
        layout.write(values, outbox.room(end + layout.nbytes), end)
        places.append((layout, end))
        end += layout.nbytes
    return places, end


def only_the_parent_stops() -> None:
    """Ctrl-C is the parent's affair. The other signals end a worker, without what the parent would
    do on the way."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def end_with(parent: int) -> None:
    """Let this process be killed when its parent ends, however that comes. (Other systems than
    Linux have no such order: there a worker sees it before its next task.)"""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was too late
        os._exit(0)


def keep_memory() -> None:
    """Let the C library keep what is freed, up to a bound, for the next step: large activations
    would else go back to the system and come again page by page, up to a quarter of a deep net's
    time."""
    # Other libraries than glibc have no such setting.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        for setting, size in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 256 << 20)):
            library.mallopt(setting, size)
