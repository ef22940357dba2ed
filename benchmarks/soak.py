"""Does a run stay as it was, however long it is and however many clients have a state?

    python benchmarks/soak.py [--rounds 2000] [--clients 100000] [--out soak]

Two runs with two workers, each in a lasting folder: a long one of MAP with few clients, and one of
FedPHP with very many, most of whom have a state at its end. After each round the memory and the
open files of the parent and of its workers are read from the system. Writes OUT.csv (a line a
round) and OUT.png, and a verdict for each run: how much memory and how many files a thousand rounds
add, and how the seconds of the last tenth of the rounds compare with those of the first."""

import argparse
import csv
import os
import tempfile
import time
from contextlib import suppress
from functools import partial
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

FEATURES, CLASSES = 8, 4
ROUNDS, SHARE = 30, 0.05  # of the run with many clients: 79 % of them have a state at its end
WARM_UP = 0.1  # share of the rounds whose growth does not count: buffers and caches fill
Line = dict[str, Any]
SHOWN = {
    "parent_mb": "memory of the parent, MB",
    "workers_mb": "memory of the workers, MB",
    "parent_files": "open files of the parent",
    "workers_files": "open files of the workers",
    "seconds": "seconds a round",
}


@NETS.add("soak")
def tiny(shape: tuple[int, ...], classes: int) -> nn.Module:
    """A linear layer of four, and the classifier."""
    return Net(nn.Sequential(nn.Linear(shape[0], 4), nn.ReLU()), 4, classes)


def federation(clients: int, each: int) -> fedmap.Federation:
    """Noise as vectors, the same number for each client."""
    rng = np.random.default_rng(0)

    def vectors(count: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = rng.standard_normal((count, FEATURES), np.float32)
        return torch.from_numpy(x), torch.from_numpy(rng.integers(CLASSES, size=count))

    owner = np.repeat(np.arange(clients), each)
    names = tuple(map(str, range(CLASSES)))
    noise = Dataset(
        "noise", *vectors(clients * each), *vectors(500), names, owner=torch.from_numpy(owner)
    )
    return fedmap.Federation(noise, owner)


def workers() -> list[int]:
    """The processes that this one has started."""
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for children in tasks for pid in children.read_text().split()]


def resident(pid: int | str) -> float:
    """Megabytes of a process in memory, with what it shares with others."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def open_files(pid: int | str) -> int:
    """How many file descriptors a process has."""
    return len(os.listdir(f"/proc/{pid}/fd"))


class Watch:
    """A line after each round."""

    def __init__(self, part: str) -> None:
        self.part = part
        self.lines: list[Line] = []
        self.before = time.perf_counter()

    def __call__(self, record: dict[str, Any]) -> None:
        pids = workers()
        now = time.perf_counter()
        self.lines.append(
            {
                "part": self.part,
                "round": record["round"],
                "seconds": now - self.before,
                "parent_mb": resident("self"),
                "workers_mb": sum(map(resident, pids)),
                "parent_files": open_files("self"),
                "workers_files": sum(map(open_files, pids)),
            }
        )
        self.before = time.perf_counter()


HOW: dict[str, Any] = {"net": "soak", "epochs": 1, "batch": 8, "workers": 2}


def long_run(rounds: int, folder: Path) -> list[Line]:
    """Few clients, many rounds."""
    watch = Watch("long")
    few = federation(20, 16)
    fedmap.run("map", few, out=folder / "long", rounds=rounds, fraction=0.5, on_round=watch, **HOW)
    return watch.lines


class EnoughError(Exception):
    """The run need not be finished."""


def many_clients(clients: int, folder: Path) -> list[Line]:
    """Very many clients, until most have a state. It stops before the end, which would write
    a model's file for each, and is resumed once."""
    watch, everybody = Watch("many"), federation(clients, 2)

    def go_on(rounds: int) -> None:
        def on_round(record: dict[str, Any]) -> None:
            watch(record)
            if record["round"] == rounds:
                raise EnoughError

        share: dict[str, Any] = {"rounds": ROUNDS + 2, "fraction": SHARE}
        with suppress(EnoughError):
            fedmap.run("fedphp", everybody, out=out, resume=True, on_round=on_round, **HOW, **share)

    out = folder / "many"
    go_on(ROUNDS)
    states = (out / "checkpoint/states.bin").stat().st_blocks / 2048
    usual = median(line["seconds"] for line in watch.lines)
    watch.before = time.perf_counter()
    go_on(ROUNDS + 1)
    again = watch.lines.pop()["seconds"]
    print(
        f"states of {clients:,} clients: {states:.0f} MB on disk; resumed in {again - usual:.1f} s"
    )
    return watch.lines


def verdict(lines: list[Line]) -> str:
    """How fast memory and files grow, and whether rounds become slower."""
    late = lines[int(len(lines) * WARM_UP) :]
    grown = {name: 1000 * slope(late, name) for name in SHOWN if name != "seconds"}
    tenth = max(len(lines) // 10, 1)
    first, last = (
        median(line["seconds"] for line in of) for of in (lines[1 : tenth + 1], lines[-tenth:])
    )
    memory, files = ("parent_mb", "workers_mb"), ("parent_files", "workers_files")
    return (
        f"{lines[0]['part']}: {len(lines):,} rounds; in 1,000 rounds the parent grows by "
        + " and the workers by ".join(f"{grown[name]:+.2f} MB" for name in memory)
        + "; open files by "
        + " and ".join(f"{grown[name]:+.2f}" for name in files)
        + f"; seconds a round {first:.3f} at first, {last:.3f} at last ({last / first:.2f} times)"
    )


def slope(lines: list[Line], name: str) -> float:
    """What a round adds, by least squares."""
    rounds, values = ([line[what] for line in lines] for what in ("round", name))
    return float(np.polyfit(rounds, values, 1)[0]) if len(lines) > 1 else 0.0


def plot(lines: list[Line], path: Path) -> None:
    """A row for each run, a panel for each number."""
    parts = list(dict.fromkeys(line["part"] for line in lines))
    figure = Figure(figsize=(3 * len(SHOWN), 2.6 * len(parts)), layout="constrained")
    panels = figure.subplots(len(parts), len(SHOWN), squeeze=False)
    for row, part in zip(panels, parts, strict=True):
        mine = [line for line in lines if line["part"] == part]
        for axes, (name, title) in zip(row, SHOWN.items(), strict=True):
            values = [line[name] for line in mine]
            axes.plot([line["round"] for line in mine], values, color=COLORS[2], linewidth=1)
            axes.set_ylim(0, 1.15 * max(values))
            axes.set_title(f"{title}", loc="left", fontsize=9)
            axes.set_xlabel("round")
            bare(axes)
        row[0].set_ylabel({"long": "few clients", "many": "very many clients"}[part])
    save(figure, path)


def main() -> None:
    """Both runs, the lines, the picture and the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=2000, help="of the long run")
    parser.add_argument("--clients", type=int, default=100_000, help="of the other")
    parser.add_argument("--out", type=Path, default=Path("soak"))
    given = parser.parse_args()
    began, lines = time.monotonic(), list[Line]()
    with tempfile.TemporaryDirectory() as folder:
        for some in (
            partial(long_run, given.rounds, Path(folder)),
            partial(many_clients, given.clients, Path(folder)),
        ):
            found = some()
            print(verdict(found), flush=True)
            lines += found
    print(f"{time.monotonic() - began:.0f} s")
    with given.out.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
    plot(lines, given.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
