"""How long a run will take on this machine, from a few training steps done now."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from heapq import heapreplace
from typing import Any, NamedTuple

from fedmap.client import local_steps
from fedmap.data import load
from fedmap.federation import PART, Federation, kept_for_choosing, partition
from fedmap.methods import AnyMethod, Method
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup, clients_per_round, do

Clock = Callable[[], float]
STEPS = 20  # that are measured: enough for a method's second stage
_speeds: dict[tuple[str, str, int, str | None], "Speed"] = {}


class Speed(NamedTuple):
    """Seconds of one worker."""

    step: float  # of FedAvg's training
    sample: float  # that a model is asked about


def seconds_of_run(settings: Settings, federation: Federation) -> float:
    """All rounds, and the personal models after the last one."""
    expected = Expected(settings, federation)
    return settings.rounds * expected.round() + expected.end()


class Expected:
    """What the parts of a run will take. Tasks are given to the workers as the engines do it, so
    that five clients take as long on two workers as six."""

    def __init__(self, settings: Settings, federation: Federation) -> None:
        self.settings = settings
        self.method: type[AnyMethod] = settings.method_class
        self.speed = speed(settings, federation)
        self.cost = cost(settings.code["method"], **settings.params)
        self.tests = [len(index) for index in federation.test]
        self.kept = [kept_for_choosing(n, settings.validation) for n in federation.sizes]
        self.trained = [n - kept for n, kept in zip(federation.sizes, self.kept, strict=True)]
        self.chosen = clients_per_round(settings.fraction, len(federation))
        self.scored = len(federation.test_y)

    def round(self) -> float:
        """Training, with each client's own tests before and after it, and scoring."""
        parts = [min(PART, self.scored - first) for first in range(0, self.scored, PART)]
        scoring = self._together(self._asked(parts)) + self._together(self._asked(self.kept))
        asked = self._asked(map(sum, zip(self.tests, self.kept, strict=True)))
        if self.method.pooled:
            share = self.chosen / len(self.tests)
            return self._training(sum(self.trained), share) + self._some(asked) + scoring
        before = self._asked(self.tests)
        tasks = zip(map(self._training, self.trained), before, asked, strict=True)
        return self._some([sum(task) for task in tasks]) + scoring

    def end(self) -> float:
        """Every client's personal model, made and tested, and the global one at each client. Where
        clients keep one, only those train that were never drawn."""
        keeps = self.method.kept_personal is not Method.kept_personal
        never = (1 - self.chosen / len(self.tests)) ** self.settings.rounds
        training = [(never if keeps else 1.0) * self._training(n) for n in self.trained]
        asked = self._asked(map(sum, zip(self.tests, self.kept, strict=True)))
        made = [sum(task) for task in zip(training, asked, strict=True)]
        groups = [made[first : first + self.chosen] for first in range(0, len(made), self.chosen)]
        return sum(map(self._together, groups)) + self._together(self._asked(self.tests))

    def _training(self, samples: int, share: float = 1.0) -> float:
        training = self.settings.model_copy(update={"epochs": share * self.settings.epochs})
        return local_steps(samples, training) * self.speed.step * self.cost

    def _asked(self, samples: Iterable[int]) -> list[float]:
        return [count * self.speed.sample for count in samples]

    def _some(self, tasks: Sequence[float]) -> float:
        """Tasks of a round's clients, where any may be drawn: some of each size."""
        ordered = sorted(tasks)
        places = [int((i + 0.5) * len(ordered) / self.chosen) for i in range(self.chosen)]
        return self._together([ordered[place] for place in places])

    def _together(self, tasks: Sequence[float]) -> float:
        return until_all_are_done(tasks, self.settings.workers)


def until_all_are_done(tasks: Sequence[float], workers: int) -> float:
    """Each worker takes the next task when it is free, the longest first."""
    busy = [0.0] * workers
    for seconds in sorted(tasks, reverse=True):
        heapreplace(busy, busy[0] + seconds)
    return max(busy)


def peak_memory() -> int:
    """The most bytes that this process has had so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def speed(settings: Settings, federation: Federation) -> Speed:
    """Of the run's net, measured once for each dataset, net, batch size and device."""
    key = (settings.data, settings.net or "", settings.batch, settings.device)
    if key not in _speeds:
        same = {"data": settings.data, "net": settings.any_net, "batch": settings.batch}
        short = Settings.of(same | {"method": "fedavg", "device": settings.device})
        _speeds[key] = measured(with_steps(short, federation), federation)
    return _speeds[key]


def with_steps(settings: Settings, federation: Federation) -> Settings:
    """The same for as many epochs as let the first client do the steps that are measured."""
    batches = -(-federation.sizes[0] // settings.batch)
    return settings.model_copy(update={"epochs": STEPS / batches})


def cost(method: Any, **params: Any) -> float:
    """How many times FedAvg's time a method's local round takes, measured on a small net."""
    own = _seconds_on_a_small_net(method, json.dumps(params, sort_keys=True))
    return max(own / _seconds_on_a_small_net("fedavg", "{}"), 1.0)


@cache
def _seconds_on_a_small_net(method: Any, params: str) -> float:
    federation = partition(load("synthetic"), 2, kind="iid")
    chosen = {"method": method, "params": json.loads(params)}
    settings = Settings.of({"data": "synthetic", "net": "lenet"} | chosen)
    # only proportions are asked for: what others do on this machine has no part in it
    clock = time.process_time
    return measured(with_steps(settings, federation), federation, clock).step


def measured(settings: Settings, federation: Federation, clock: Clock = time.perf_counter) -> Speed:
    """Of the first client's local round in this process, and of the global model's scoring."""
    setup = Setup(settings, federation)
    down = setup.method.download(setup.method.start(setup.initial))
    state = setup.method.client_state(setup.initial)
    model = {"model": setup.initial.vector}
    with setup.in_force():
        training = faster_of_two(lambda: do(setup, "train", 1, 0, down, state), clock)
        scoring = faster_of_two(lambda: do(setup, "evaluate", 1, 0, model, {}), clock)
    sample = scoring / min(PART, len(federation.test_y))
    asked = 2 * len(federation.test[0]) * sample  # before and after training
    steps = local_steps(federation.sizes[0], settings)
    return Speed(max(training - asked, training / 2) / steps, sample)


def faster_of_two(act: Callable[[], object], clock: Clock) -> float:
    """The seconds that it takes; the first time, much is done that is not done again."""
    seconds = []
    for _ in range(2):
        began = clock()
        act()
        seconds.append(clock() - began)
    return min(seconds)
