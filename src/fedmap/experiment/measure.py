"""How long the rounds of a run will take on this machine, from a few training steps done now."""

import json
import sys
import time
from functools import cache
from typing import Any

from fedmap.client import MIN_STEPS
from fedmap.data import load
from fedmap.federation import Federation, partition
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup, do

STEPS_OF_A_COMPARISON = 20  # enough for a method's second stage
_seconds: dict[tuple[str, str, int, str | None], float] = {}


def seconds_a_round(settings: Settings, federation: Federation) -> float:
    """A round's training steps and the scoring of the global model, divided among the workers."""
    clients = max(settings.fraction * len(federation), 1)
    samples = federation.counts.sum(1).float().mean().item()
    steps = max(samples / settings.batch * settings.epochs, MIN_STEPS)
    scoring = len(federation.test_y) / settings.batch / 3  # a forward pass is a third of a step
    step = seconds_a_training_step(settings, federation)
    training = clients * steps * cost(settings.code["method"], **settings.params)
    return step * (training + scoring) / settings.workers


def peak_memory() -> int:
    """The most bytes that this process has had so far; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def seconds_a_training_step(settings: Settings, federation: Federation) -> float:
    """Of FedAvg with the run's net, measured once for each dataset, net, batch size and device."""
    key = (settings.data, settings.net or "", settings.batch, settings.device)
    if key not in _seconds:
        same = {"data": settings.data, "net": settings.any_net, "batch": settings.batch}
        shortest = {"method": "fedavg", "epochs": 1e-9}  # the fewest steps that a client does
        short = Settings.of(same | shortest | {"device": settings.device})
        _seconds[key] = seconds_of_a_client(short, federation) / MIN_STEPS
    return _seconds[key]


def cost(method: Any, **params: Any) -> float:
    """How many times FedAvg's time a method's local round takes, measured on a small net."""
    own = _seconds_on_a_small_net(method, json.dumps(params, sort_keys=True))
    return max(own / _seconds_on_a_small_net("fedavg", "{}"), 1.0)


@cache
def _seconds_on_a_small_net(method: Any, params: str) -> float:
    federation = partition(load("synthetic"), 2, kind="iid")
    epochs = STEPS_OF_A_COMPARISON * 64 / float(federation.counts[0].sum())
    chosen = {"method": method, "params": json.loads(params), "epochs": epochs}
    return seconds_of_a_client(
        Settings.of({"data": "synthetic", "net": "lenet"} | chosen), federation
    )


def seconds_of_a_client(settings: Settings, federation: Federation) -> float:
    """The faster of two local rounds of a client in this process."""
    setup = Setup(settings, federation)
    down = setup.method.download(setup.method.start(setup.initial))
    state = setup.method.client_state(setup.initial)
    seconds = []
    with setup.in_force():
        for _ in range(2):
            began = time.perf_counter()
            do(setup, "train", 1, 0, down, state)
            seconds.append(time.perf_counter() - began)
    return min(seconds)
