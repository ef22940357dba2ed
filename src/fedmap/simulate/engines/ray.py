"""The engine that runs tasks on the nodes of a Ray cluster, in processes with one core each."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from fedmap import devices
from fedmap.errors import FedmapError
from fedmap.own_code import code_files, take_files
from fedmap.simulate.cluster import (
    ON_ONE_CORE,
    Deaths,
    Packed,
    connected,
    named_node,
    pack,
    places,
    require_versions,
    share_of_gpus,
    unpack,
    versions,
)
from fedmap.simulate.engines.base import (
    ENGINES,
    from_words,
    in_words,
    longest_first,
    refuse_timeout,
)
from fedmap.simulate.engines.fork import keep_memory
from fedmap.simulate.settings import Settings
from fedmap.simulate.store import StateStore
from fedmap.simulate.tasks import WITH_STATE, Reply, Setup, TaskName, do
from fedmap.values import Values

AHEAD = 2  # calls that a worker has at a time, so that it need not wait for the next one
SECONDS_TO_START = 120.0  # until a cluster without a free core is given up


@ENGINES.add("ray")
class RayEngine:
    """Long-lived workers on a Ray cluster. The federation travels once to each node, what goes down
    once in a call; else only states and uploads move. The states stay in the store at the driver,
    so that the tasks of a worker that dies are simply done again by the others."""

    def __init__(self, setup: Setup, store: StateStore) -> None:
        refuse_timeout(setup, "ray")
        self._setup, self._store = setup, store
        settings = setup.settings
        self._deaths = Deaths()
        self._ready: list[Any] = []  # workers that can be given tasks
        self._starting: dict[Any, Any] = {}  # by the answer that will come: workers to be
        with ExitStack() as stack:
            self._ray = ray = stack.enter_context(connected(settings.ray_address, settings.workers))
            gpus = share_of_gpus(ray, settings.device, self._size())
            self._worker = ray.remote(**ON_ONE_CORE, **gpus)(Worker)
            federation = ray.put(pack(setup.federation))
            # Ray shows a worker its own GPUs only, so their numbers at the driver say nothing.
            there = settings.model_copy(update={"device": devices.kind(settings.device)})
            files = code_files(settings.method, settings.net)
            self._given = (versions(), there, files, federation)
            for _ in range(self._size()):
                self._hire()
            self._connection = stack.pop_all()

    def _size(self) -> int:
        """How many workers there are to be: not more than can ever have a task at once."""
        setup, settings = self._setup, self._setup.settings
        most = max(setup.clients_per_round, len(setup.federation.test_parts))
        address, device = settings.ray_address, settings.device
        return min(places(self._ray, address, settings.workers, device), most)

    def _hire(self) -> None:
        worker = self._worker.remote()
        self._starting[worker.begin.remote(*self._given)] = worker

    def ready(self) -> range:
        """Everybody."""
        return range(len(self._setup.federation))

    def map(self, task: TaskName, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        """Run one task for each key."""
        sent = self._ray.put(pack(down))
        waiting = longest_first(self._setup, task, keys)
        under_way: dict[Any, tuple[Any, list[int]]] = {}
        replies: dict[int, Reply] = {}
        while len(replies) < len(keys):
            load = Counter(worker for worker, _ in under_way.values())
            while waiting and (worker := self._free(load)):
                some = self._share(waiting)
                states = [self._store[key] if task in WITH_STATE else {} for key in some]
                call = worker.do.remote(task, round, some, sent, pack(states))
                under_way[call] = worker, some
                load[worker] += 1
            for call in self._some_answer(list(under_way)):
                worker, some = under_way.pop(call)
                answer = self._answer(call, worker)
                if answer is None:
                    waiting[:0] = some
                else:
                    replies |= self._replies(answer, task, round, some)
        return [replies[key] for key in keys]

    def _free(self, load: Counter[Any]) -> Any:
        """The worker that gets the next tasks, if any."""
        worker = min(self._ready, key=lambda worker: load[worker], default=None)
        return worker if load[worker] < AHEAD else None

    def _share(self, waiting: list[int]) -> list[int]:
        """The next tasks of a call, taken from those that wait: many at first, because every call
        has its price, and one at the end, so that all workers end together."""
        workers = len(self._ready) + len(self._starting)
        size = max(len(waiting) // (2 * workers), 1)
        some = waiting[:size]
        del waiting[:size]
        return some

    def _some_answer(self, calls: list[Any]) -> list[Any]:
        """The calls that are answered next; workers that have begun meanwhile are ready."""
        patience = None if self._ready else SECONDS_TO_START
        answered: list[Any]
        answered, _ = self._ray.wait([*calls, *self._starting], timeout=patience)
        if not answered:
            free = self._ray.available_resources().get("CPU", 0)
            raise FedmapError(
                f"no worker could be started on the Ray cluster within {SECONDS_TO_START:g} s; of "
                f"its {self._ray.cluster_resources().get('CPU', 0):g} cores {free:g} are free"
            )
        for begun in [call for call in answered if call in self._starting]:
            answered.remove(begun)
            self._ready.append(worker := self._starting.pop(begun))
            if sentence := self._answer(begun, worker):
                raise FedmapError(sentence)
        return answered

    def _answer(self, call: Any, worker: Any) -> Any:
        """What a worker says; nothing where it died, and then there will be another one."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.RayTaskError as wrong:  # not even its arguments could be read
            raise FedmapError(f"a worker on the Ray cluster failed:\n{wrong}") from None
        except errors.RayError as wrong:
            if worker in self._ready:  # else it is known from another call
                self._ready.remove(worker)
                self._ray.kill(worker)  # it may be alive, but out of reach
                self._deaths.one_more(wrong)
                self._hire()
            return None

    def _replies(
        self, answer: Packed, task: TaskName, round: int, keys: list[int]
    ) -> dict[int, Reply]:
        """The replies of a call. The states that clients leave go into the store."""
        self._deaths.progress()
        replies: dict[int, Reply] = {}
        for key, one in zip(keys, unpack(answer), strict=False):  # after an error there are no more
            if not isinstance(one, Reply):
                kind, text = one
                raise from_words(self._setup, kind, text, task, round, key)
            if task == "train":
                self._store.put(key, round, one.state)
            replies[key] = one._replace(state={})
        return replies

    def close(self) -> None:
        """End the workers: they hold nothing that needs saving."""
        for worker in (*self._ready, *self._starting.values()):
            self._ray.kill(worker)
        self._connection.close()


class Worker:
    """What lives on a node: everything of the run but the states."""

    def begin(
        self,
        driver: dict[str, str],
        settings: Settings,
        files: dict[Path, bytes],
        federation: Packed,
    ) -> str:
        """Make the node ready for tasks; first of all, is it like the driver? A sentence where it
        cannot be done."""
        try:
            with named_node():
                require_versions(driver)
                torch.set_num_threads(1)
                keep_memory()
                take_files(files)
                self._setup = Setup(settings, unpack(federation))
        except Exception as wrong:
            return in_words(wrong)[1]
        return ""

    def do(
        self, task: TaskName, round: int, keys: list[int], down: Packed, states: Packed
    ) -> Packed:
        """Some tasks, with the states that the clients have kept: replies, up to the first task
        that fails, of which there is what `in_words` says."""
        replies: list[Reply | tuple[str, str]] = []
        try:
            with self._setup.in_force():
                values = unpack(down)
                for key, state in zip(keys, unpack(states), strict=True):
                    replies.append(do(self._setup, task, round, key, values, state))
        except (Exception, SystemExit) as wrong:
            replies.append(in_words(wrong))
        return pack(replies)
