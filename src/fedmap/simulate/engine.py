"""Engines: what runs the tasks of a round. `InProcess` runs them here; `Pool` runs them in N processes with one torch
thread each. Both give the same bits, because no task depends on where or in which order it runs."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Protocol

import torch

from fedmap.errors import DivergenceError, FedmapError
from fedmap.methods import Values
from fedmap.simulate.shared import Layout, Memory
from fedmap.simulate.workshop import Reply, Workshop

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of the C library's mallopt


class Engine(Protocol):
    """Runs one task for each key; replies come in the order of the keys and are valid until the next call."""

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
    """N forked processes. They inherit data, method and store; what goes down lies in one shared memory, what comes back in
    one for each worker; only names, shapes and numbers go through the pipes."""

    def __init__(self, workshop: Workshop, workers: int) -> None:
        self.workshop = workshop
        self._down = Memory()
        self._outboxes = [Memory() for _ in range(workers)]
        self._calls = 0
        self._pipes: list[Connection] = []
        self._processes: list[ForkProcess] = []
        context = multiprocessing.get_context("fork")
        for outbox in self._outboxes:
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            process = context.Process(target=_work, args=(workshop, theirs, list(self._pipes), self._down, outbox), daemon=True)
            process.start()
            self._processes.append(process)
            theirs.close()

    def map(self, task: str, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        self._calls += 1
        layout = Layout.of(down)
        layout.write(down, self._down.room(layout.nbytes))
        # The longest task first: a long one that starts last would leave the other workers waiting.
        sizes = self.workshop.federation.counts.sum(1).tolist()
        waiting = list(keys) if task == "evaluate" else sorted(keys, key=lambda client: sizes[client])
        replies: dict[int, Reply] = {}
        doing: dict[int, int] = {}  # worker -> key
        for worker in range(len(self._pipes)):
            self._give(worker, task, round, layout, waiting, doing)
        while doing:
            ready = wait([self._pipes[w] for w in doing] + [self._processes[w].sentinel for w in doing])
            for worker, key in list(doing.items()):
                if self._pipes[worker] in ready:
                    try:
                        kind, answer = self._pipes[worker].recv()
                    except (EOFError, ConnectionResetError):
                        raise self._died(worker, task, round, key) from None
                    if kind == "sentence":
                        raise FedmapError(answer)
                    if kind == "diverged":
                        raise DivergenceError(answer)
                    if kind == "traceback":
                        raise failure(task, round, key, answer)
                    replies[key] = self._read(worker, answer)
                    del doing[worker]
                    self._give(worker, task, round, layout, waiting, doing)
                elif self._processes[worker].sentinel in ready:
                    raise self._died(worker, task, round, key)
        return [replies[key] for key in keys]

    def _give(self, worker: int, task: str, round: int, layout: Layout, waiting: list[int], doing: dict[int, int]) -> None:
        if waiting:
            doing[worker] = waiting.pop()
            self._pipes[worker].send((self._calls, task, round, doing[worker], layout))

    def _read(self, worker: int, answer: tuple[int, dict[str, float], list[tuple[Layout, int]]]) -> Reply:
        key, numbers, places = answer
        memory = self._outboxes[worker].room(places[-1][0].nbytes + places[-1][1])
        up, result = (layout.read(memory, start) for layout, start in places)
        return Reply(key, numbers, up, result)

    def _died(self, worker: int, task: str, round: int, key: int) -> FedmapError:
        self._processes[worker].join(5)
        code = self._processes[worker].exitcode
        how = (
            f"was ended by signal {-code} ({signal.Signals(-code).name})"
            if code is not None and code < 0
            else f"ended with exit code {code}"
        )
        return failure(task, round, key, f"its worker process {how}")

    def close(self) -> None:
        for process in self._processes:
            process.kill()  # a worker holds nothing that needs saving
        for process in self._processes:
            process.join()
        for pipe in self._pipes:
            pipe.close()


def _work(workshop: Workshop, pipe: Connection, parents: list[Connection], down_memory: Memory, outbox: Memory) -> None:
    """A worker's life: take a task, do it, put tensors into the outbox and numbers into the pipe; end when the parent is gone."""
    for inherited in parents:
        inherited.close()  # else the pipe's end would never be seen after the parent's death
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's affair
    torch.set_num_threads(1)
    _keep_memory()
    call, end = 0, 0
    try:
        while True:
            this_call, task, round, key, layout = pipe.recv()
            if this_call != call:
                call, end = this_call, 0  # the parent is done with what the last call left in the outbox
            try:
                reply = workshop.do(task, round, key, layout.read(down_memory.room(layout.nbytes)))
                places = []
                for values in (reply.up, reply.result):
                    place = Layout.of(values)
                    place.write(values, outbox.room(end + place.nbytes), end)
                    places.append((place, end))
                    end += place.nbytes
                pipe.send(("done", (key, reply.numbers, places)))
            except FedmapError as sentence:
                pipe.send(("diverged" if isinstance(sentence, DivergenceError) else "sentence", str(sentence)))
            except Exception:
                pipe.send(("traceback", traceback.format_exc()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        os._exit(0)  # no clean-up of what belongs to the parent


def _keep_memory() -> None:
    """Let the C library keep what is freed, up to a bound, for the next step: large activations would else go back to the system and
    come again page by page, up to a quarter of a deep net's time."""
    with contextlib.suppress(OSError, AttributeError):  # other libraries than glibc have no such setting
        library = ctypes.CDLL(None)
        for setting, size in ((M_MMAP_THRESHOLD, 32 << 20), (M_TRIM_THRESHOLD, 256 << 20)):
            library.mallopt(setting, size)
