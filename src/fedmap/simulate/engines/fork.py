"""Engines: what runs the tasks of a round. `InProcess` runs them here; `Pool` runs them in N
processes with one torch thread each. Both give the same bits, because no task depends on where or
in which order it runs."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import struct
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Protocol

import torch

from fedmap.errors import DivergenceError, FedmapError
from fedmap.methods import Values
from fedmap.simulate.memory import ALIGNMENT, Layout, Memory
from fedmap.simulate.tasks import Reply, Workshop

KEY = struct.Struct("<q")
NO_KEY = -1
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of the C library's mallopt


class Engine(Protocol):
    """Runs one task for each key; replies come in the order of the keys and are valid until the
    next call."""

    def map(self, task: str, round: int, keys: Sequence[int], down: Values) -> list[Reply]: ...

    def close(self) -> None: ...


def failure(task: str, round: int, key: int, text: str) -> FedmapError:
    what = f"part {key} of the global test set" if task == "evaluate" else f"client {key}"
    return FedmapError(f"{what} failed in round {round}:\n{text.rstrip()}")


class InProcess:
    """One task after the other in this process."""

    def __init__(self, workshop: Workshop) -> None:
        self.workshop = workshop

    def map(self, task: str, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        replies = []
        for key in keys:
            try:
                replies.append(self.workshop.do(task, round, key, down))
            except FedmapError:
                raise
            except Exception as wrong:
                raise failure(task, round, key, traceback.format_exc()) from wrong
        return replies

    def close(self) -> None:
        pass


class Pool:
    """N forked processes. They inherit data, method and store; what goes down lies in one shared
    memory, what comes back in one for each worker; only names, shapes and numbers go through the
    pipes, once a call. Workers take their tasks themselves, from a memory that has the keys, so
    that none waits for the parent."""

    def __init__(self, workshop: Workshop, workers: int) -> None:
        self.workshop = workshop
        self._down, self._keys = Memory(), Memory()
        self._outboxes = [Memory() for _ in range(workers)]
        self._pipes: list[Connection] = []
        self._processes: list[ForkProcess] = []
        context = multiprocessing.get_context("fork")
        for outbox in self._outboxes:
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            given = (
                workshop,
                os.getpid(),
                theirs,
                list(self._pipes),
                self._down,
                self._keys,
                outbox,
            )
            process = context.Process(target=_work, args=given, daemon=True)
            process.start()
            self._processes.append(process)
            theirs.close()

    def map(self, task: str, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        layout = Layout.of(down)
        layout.write(down, self._down.room(layout.nbytes))
        # The longest task first: a long one that starts last would leave the other workers waiting.
        samples = self.workshop.federation.counts.sum(1).tolist()
        order = keys if task == "evaluate" else sorted(keys, key=lambda client: -samples[client])
        self._keys.offer(b"".join(KEY.pack(key) for key in order))
        for pipe, outbox in zip(self._pipes, self._outboxes, strict=True):
            KEY.pack_into(outbox.room(KEY.size), 0, NO_KEY)
            with contextlib.suppress(BrokenPipeError):  # the answer that does not come tells more
                pipe.send((task, round, layout))
        replies: dict[int, Reply] = {}
        working = dict(enumerate(self._pipes))
        while working:
            ready = wait(
                [*working.values(), *(self._processes[worker].sentinel for worker in working)]
            )
            for worker, pipe in list(working.items()):
                if pipe in ready:
                    replies |= {reply.key: reply for reply in self._receive(worker, task, round)}
                    del working[worker]
                elif self._processes[worker].sentinel in ready:
                    raise self._died(worker, task, round)
        return [replies[key] for key in keys]

    def _receive(self, worker: int, task: str, round: int) -> list[Reply]:
        try:
            kind, answer = self._pipes[worker].recv()
        except (EOFError, ConnectionResetError):
            raise self._died(worker, task, round) from None
        if kind == "sentence":
            raise FedmapError(answer)
        if kind == "diverged":
            raise DivergenceError(answer)
        if kind == "traceback":
            raise failure(task, round, self._key(worker), answer)
        return [self._read(worker, *one) for one in answer]

    def _read(
        self, worker: int, key: int, numbers: dict[str, float], places: list[tuple[Layout, int]]
    ) -> Reply:
        memory = self._outboxes[worker].room(places[-1][0].nbytes + places[-1][1])
        up, result = (layout.read(memory, start) for layout, start in places)
        return Reply(key, numbers, up, result)

    def _key(self, worker: int) -> int:
        """What the worker has taken last in this call."""
        return int(KEY.unpack_from(self._outboxes[worker].room(KEY.size))[0])

    def _died(self, worker: int, task: str, round: int) -> FedmapError:
        self._processes[worker].join(5)
        code = self._processes[worker].exitcode
        how = (
            f"was ended by signal {-code} ({signal.Signals(-code).name})"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        key = self._key(worker)
        if key == NO_KEY:
            return FedmapError(f"a worker process {how} between two tasks")
        return failure(task, round, key, f"its worker process {how}")

    def close(self) -> None:
        for process in self._processes:
            process.kill()  # a worker holds nothing that needs saving
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()


def _work(
    workshop: Workshop,
    parent: int,
    pipe: Connection,
    parents: list[Connection],
    down: Memory,
    keys: Memory,
    outbox: Memory,
) -> None:
    """A worker's life: do tasks as long as there are keys, put tensors into the outbox and at last
    numbers into the pipe; end when the parent is gone."""
    for inherited in parents:
        inherited.close()  # else the pipe's end would never be seen after the parent's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    torch.set_num_threads(1)
    _keep_memory()
    try:
        while True:
            task, round, layout = pipe.recv()
            # the parent is done with what the last call left in the outbox
            done, end = ([], ALIGNMENT)
            try:
                while (packed := keys.take(KEY.size)) and os.getppid() == parent:
                    outbox.room(KEY.size)[: KEY.size] = packed
                    reply = workshop.do(
                        task, round, KEY.unpack(packed)[0], layout.read(down.room(layout.nbytes))
                    )
                    places = []
                    for values in (reply.up, reply.result):
                        place = Layout.of(values)
                        place.write(values, outbox.room(end + place.nbytes), end)
                        places.append((place, end))
                        end += place.nbytes
                    done.append((reply.key, reply.numbers, places))
                pipe.send(("done", done))
            except FedmapError as sentence:
                pipe.send(
                    (
                        "diverged" if isinstance(sentence, DivergenceError) else "sentence",
                        str(sentence),
                    )
                )
            except Exception:
                pipe.send(("traceback", traceback.format_exc()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        os._exit(0)  # no clean-up of what belongs to the parent


def _keep_memory() -> None:
    """Let the C library keep what is freed, up to a bound, for the next step: large activations
    would else go back to the system and come again page by page, up to a quarter of a deep net's
    time."""
    # other libraries than glibc have no such setting
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for setting, size in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 256 << 20)):
            library.mallopt(setting, size)
