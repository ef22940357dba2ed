"""What an engine costs: the same rounds in this process, in the pool of forked processes, and on
Ray with one node and with two, in turns.

    python benchmarks/engines.py [--workloads fedavg/lenet,map/mlp] [--rounds 7]

Each engine has a process of its own. They take turns round by round, so that the machine's moods
hit all alike: a ratio is the median of the ratios within a turn. Two rounds of each are a warm-up.
All Ray nodes are on this machine, so no network is measured."""

import argparse
import multiprocessing
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, NamedTuple

from measure import machine

from fedmap.simulate.engines import ENGINES, Engine
from fedmap.simulate.round import play_round
from fedmap.simulate.settings import Settings
from fedmap.simulate.store import FileStore
from fedmap.simulate.tasks import Reply, Setup, TaskName
from fedmap.values import Values

CORES = 2
REFERENCE = "fork pool"
WARM_UP = 2
CONTENDERS: dict[str, dict[str, Any]] = {
    "in-process": {"engine": "local"},
    REFERENCE: {"engine": "fork", "workers": CORES},
    "Ray, 1 node": {"engine": "ray", "workers": CORES},
    "Ray, 2 nodes": {"engine": "ray", "nodes": 2},
}
WORKLOADS = ["fedavg/lenet", "map/lenet", "fedavg/mlp", "map/mlp"]
GIVEN = {"data": "fashion-mini", "clients": 100, "fraction": 0.2}


class Turn(NamedTuple):
    """Seconds of one round, and of the clients' calls in it."""

    round: float
    training: float


class Timed:
    """An engine that takes the time of the clients' calls."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.training = 0.0
        self.close = engine.close
        self.ready = engine.ready

    def map(self, task: TaskName, round: int, keys: Sequence[int], down: Values) -> list[Reply]:
        began = time.perf_counter()
        replies = self._engine.map(task, round, keys, down)
        if task == "train":
            self.training = time.perf_counter() - began
        return replies


def take_part(workload: str, how: dict[str, Any], pipe: Connection) -> None:
    """A contender's process: a round each time that it is asked."""
    method, net = workload.split("/")
    with ExitStack() as stack:
        how = dict(how)
        nodes = how.pop("nodes", 0)
        if nodes:
            how["ray_address"] = start_nodes(nodes, stack)
        settings = Settings.of(GIVEN | how | {"method": method, "net": net})
        setup = Setup(settings, settings.federation())
        store = FileStore(setup.method.client_state(setup.initial), len(setup.federation))
        state = setup.method.start(setup.initial)
        stack.enter_context(setup.in_force())
        engine = Timed(ENGINES[settings.engine](setup, store))
        stack.callback(engine.close)
        round = 0
        while pipe.recv():
            round += 1
            began = time.perf_counter()
            state = play_round(setup, engine, round, state).state
            pipe.send(Turn(time.perf_counter() - began, engine.training))


def start_nodes(nodes: int, stack: ExitStack) -> str:
    """The address of a Ray cluster on this machine, for this machine alone."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    from ray.cluster_utils import Cluster

    here = "127.0.0.1"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "node_ip_address": here})
    stack.callback(cluster.shutdown)
    for _ in range(nodes):
        cluster.add_node(num_cpus=CORES // nodes, node_ip_address=here)
    return str(cluster.address)


def measure(workload: str, rounds: int) -> dict[str, list[Turn]]:
    """The rounds of all contenders, in turns."""
    context = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    processes = []
    try:
        for name, how in CONTENDERS.items():
            pipes[name], other = context.Pipe()
            process = context.Process(target=take_part, args=(workload, how, other))
            process.start()
            other.close()
            processes.append(process)
        turns: dict[str, list[Turn]] = {name: [] for name in CONTENDERS}
        for number in range(WARM_UP + rounds):
            for name in list(pipes)[:: 1 if number % 2 else -1]:
                pipes[name].send(True)
                turns[name].append(pipes[name].recv())
        return {name: taken[WARM_UP:] for name, taken in turns.items()}
    finally:
        for pipe in pipes.values():
            pipe.send(False)
        for process in processes:
            process.join()


def row(workload: str, name: str, turns: dict[str, list[Turn]]) -> list[str]:
    """One line of the table."""
    taken = turns[name]
    clients = GIVEN["clients"] * GIVEN["fraction"]  # type: ignore[operator]
    pairs = zip(taken, turns[REFERENCE], strict=True)
    return [
        workload,
        name,
        f"{median(turn.training for turn in taken) / clients * 1e3:.1f}",
        f"{median(turn.round for turn in taken):.3f}",
        f"{min(turn.round for turn in taken):.3f} to {max(turn.round for turn in taken):.3f}",
        f"{median(turn.round / other.round for turn, other in pairs):.2f}",
    ]


def main() -> None:
    """Measure and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    about = machine()
    print(f"{about['cpu']}, {about['cores']} cores, Python {about['python']}\n")
    head = [
        "workload",
        "engine",
        "ms a client call",
        "s a round",
        "from to",
        f"ratio to {REFERENCE}",
    ]
    print(f"| {' | '.join(head)} |\n{'| --- ' * len(head)}|")
    for workload in given.workloads.split(","):
        turns = measure(workload, given.rounds)
        for name in CONTENDERS:
            print(f"| {' | '.join(row(workload, name, turns))} |", flush=True)


if __name__ == "__main__":
    main()
