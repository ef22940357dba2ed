"""How time and memory grow: with clients a round, with all clients, with workers, with the size of
the model.

    python benchmarks/growth.py [--out growth] [--only clients-a-round total-clients workers
    model-size memory]

Every series is measured in turns (one round of each of its members, then again), so that a noisy
machine is noisy for all of them. Writes OUT.json and, with matplotlib, OUT.png; docs/performance.md
shows both."""

import argparse
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import fedmap
from fedmap.data import Dataset
from fedmap.nets import NETS, Net
from fedmap.report.plots import COLORS, bare, save

CLASSES = 10
Point = dict[str, Any]


def federation(
    clients: int,
    each: int,
    shape: tuple[int, ...] = (1, 32, 32),
    classes: int = CLASSES,
    test: int = 10_000,
) -> fedmap.Federation:
    """Noise as images, the same number for each client."""
    rng = np.random.default_rng(0)

    def images(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        pixels = np.frombuffer(rng.bytes(count * int(np.prod(shape))), np.uint8).copy()
        x = torch.from_numpy(pixels.reshape(count, *shape))
        return x, torch.from_numpy(rng.integers(classes, size=count))

    owner = np.repeat(np.arange(clients), each)
    names = tuple(map(str, range(classes)))
    noise = Dataset(
        "noise", *images(clients * each), *images(test), names, owner=torch.from_numpy(owner)
    )
    return fedmap.Federation(noise, owner)


def resident() -> float:
    """Megabytes of this process and its children in memory, what they share counted once."""
    # a child belongs to the thread that forked it
    mine = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    pids = [os.getpid(), *(int(pid) for children in mine for pid in children.read_text().split())]
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


class Contender:
    """A run that stops after each round until it gets another turn."""

    def __init__(
        self, clients: fedmap.Federation, rounds: int, method: str = "fedavg", **settings: Any
    ) -> None:
        self._turn, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self.seconds: list[float] = []
        self.memory = 0.0

        def on_round(record: dict[str, Any]) -> None:
            self.seconds.append(record["seconds"])
            self.memory = max(self.memory, resident())
            self._done.release()
            self._turn.acquire()

        def work() -> None:
            self._turn.acquire()
            fedmap.run(method, clients, rounds=rounds + 1, on_round=on_round, **settings)

        threading.Thread(target=work, daemon=True).start()

    def round(self) -> None:
        self._turn.release()
        self._done.acquire()

    def point(self, **about: Any) -> Point:
        timed = self.seconds[1:]  # the first round also warms up
        return about | {
            "seconds": median(timed),
            "least": min(timed),
            "most": max(timed),
            "memory_mb": round(self.memory),
        }


def in_turns(contenders: dict[Any, Contender], rounds: int, name: str) -> list[Point]:
    for _ in range(rounds + 1):
        for contender in contenders.values():
            contender.round()
    return [contender.point(**{name: value}) for value, contender in contenders.items()]


def clients_a_round(rounds: int) -> list[Point]:
    clients = federation(100, 600)
    runs = {
        n: Contender(clients, rounds, net="lenet", fraction=n / 100, workers=2)
        for n in (10, 20, 50, 100)
    }
    return in_turns(runs, rounds, "clients a round")


def total_clients(rounds: int) -> list[Point]:
    """Twenty a round of ever more clients with eight samples each, MAP with its states: what the
    others cost by being there."""
    found = []
    for n in (100, 3_550, 100_000):
        with tempfile.TemporaryDirectory() as folder:
            how = {"net": "lenet", "fraction": 20 / n, "workers": 2, "out": f"{folder}/run"}
            run = Contender(federation(n, 8, test=2_000), rounds, "map", **how)
            found += in_turns({n: run}, rounds, "clients")
    return found


def workers(rounds: int) -> list[Point]:
    clients = federation(100, 600)
    runs = {n: Contender(clients, rounds, net="lenet", workers=n) for n in (1, 2)}
    return in_turns(runs, rounds, "workers")


def model_size(rounds: int) -> list[Point]:
    """MLPs of two equal hidden layers."""
    clients = federation(100, 600, test=2_000)
    sizes = {}
    for width in (64, 256, 1024, 2048):

        @NETS.add(f"mlp-{width}")
        def build(shape: tuple[int, ...], classes: int, width: int = width) -> nn.Module:
            first, second = nn.Linear(int(np.prod(shape)), width), nn.Linear(width, width)
            layers = nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU())
            return Net(layers, width, classes)

        count = 1024 * width + width + width * width + width + width * CLASSES
        sizes[count] = Contender(
            clients, rounds, net=f"mlp-{width}", fraction=0.04, epochs=1, workers=2
        )
    return in_turns(sizes, rounds, "parameters")


def memory(rounds: int) -> list[Point]:
    """All 3,550 writers of FEMNIST with MAP's states, three tenths of them a round, the paper's
    most, until nearly each has one.

    They train for the least number of steps: what they keep is of the same size however long they
    train."""
    clients = federation(3_550, 229, (1, 28, 28), 62)
    little = {"fraction": 0.3, "epochs": 0.01, "batch": 2, "workers": 2}
    with tempfile.TemporaryDirectory() as folder:
        run = Contender(clients, 7, "map", net="femnist", out=f"{folder}/run", **little)
        [point] = in_turns({3_550: run}, 7, "clients")
        states = Path(folder) / "run/checkpoint/states.bin"
        return [point | {"states_mb": round(states.stat().st_blocks / 2048)}]


SERIES: dict[str, Callable[[int], list[Point]]] = {
    "clients-a-round": clients_a_round,
    "total-clients": total_clients,
    "workers": workers,
    "model-size": model_size,
    "memory": memory,
}


def plot(series: dict[str, list[Point]], path: Path) -> None:
    """Seconds a round, one panel for each series."""
    shown = {name: points for name, points in series.items() if name != "memory"}
    figure = Figure(figsize=(3.2 * len(shown), 3.2), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (name, points) in zip(panels, shown.items(), strict=True):
        across = [next(iter(point.values())) for point in points]
        middle = [point["seconds"] for point in points]
        below = [point["seconds"] - point["least"] for point in points]
        above = [point["most"] - point["seconds"] for point in points]
        axes.errorbar(across, middle, yerr=[below, above], color=COLORS[2], marker="o", capsize=3)
        axes.set_xlabel(next(iter(points[0])))
        axes.set_ylabel("seconds a round")
        if max(across) / min(across) > 50:
            axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_title(name.replace("-", " "), loc="left", fontsize=10)
        bare(axes)
    save(figure, path)


def lines(series: dict[str, list[Point]]) -> Iterator[str]:
    for name, points in series.items():
        for point in points:
            yield f"{name}: " + ", ".join(
                f"{what} {value:.3g}" if isinstance(value, float) else f"{what} {value:,}"
                for what, value in point.items()
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("growth"))
    parser.add_argument("--only", nargs="+", choices=SERIES, default=list(SERIES))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    series = {}
    for name in arguments.only:
        series[name] = SERIES[name](arguments.rounds)
        print("\n".join(lines({name: series[name]})), flush=True)
    arguments.out.with_suffix(".json").write_text(json.dumps(series, indent=1) + "\n")
    if series.keys() != {"memory"}:
        plot(series, arguments.out.with_suffix(".png"))
    os._exit(0)  # the runs wait for turns that will not come


if __name__ == "__main__":
    main()
