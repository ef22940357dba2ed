"""Draws the pictures of docs/concepts.md from real runs, in about half a minute.

    python scripts/draw_concepts.py [OUT]

Fashion-MNIST's embedded part, 20 clients, LeNet, seed 0. The last picture is of the table in
docs/methods/README.md, which scripts/measure_methods.py writes."""

import re
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import fedmap
from fedmap.diagnosis.numbers import Trained, local_rounds
from fedmap.diagnosis.picture import MISSING, OBSERVED
from fedmap.federation import Federation
from fedmap.report.plots import SMOOTH, bare, save, smooth
from fedmap.simulate.result import load_named
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup

DOCS = Path(__file__).resolve().parent.parent / "docs"
ROUNDS = 30
# How missing classes enter the local softmax, from FedAvg's way to not at all.
SOFTMAXES: dict[str, dict[str, Any]] = {
    "as they are\n(FedAvg)": {"alpha": 1.0},
    "times 0.9": {"alpha": 0.9},
    "times 0.5": {"alpha": 0.5},
    "times 0.1": {"alpha": 0.1},
    "left out": {"mode": "removed"},
}
SPOKEN_OF = ("MAP", "FedAvg", "FedROD", "FedPHP", "FedMMD")
LINES = {
    "accuracy_download": (MISSING, "the model as downloaded"),
    "accuracy": (OBSERVED, "the model that it ends the round with"),
}


def moved(federation: Federation, start: fedmap.Result) -> Figure:
    """How far proxies move in a local round from a trained global model, by softmax."""
    found: dict[str, list[Trained]] = {}
    for name, params in SOFTMAXES.items():
        settings = Settings.of({"method": "fedrs", "params": params, "net": "lenet"})
        setup = Setup(settings, federation)
        model = load_named(setup.initial, start.folder / "global.safetensors")["model"]
        found[name] = local_rounds(setup, model, ROUNDS + 1)
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes, places = figure.subplots(), np.arange(len(found))
    for kind, color, shift in (("observed", OBSERVED, -0.2), ("missing", MISSING, 0.2)):
        known = [
            [getattr(t, kind) for t in each if t.missing is not None] for each in found.values()
        ]
        axes.bar(places + shift, [mean(each) for each in known], 0.38, color=color, label=kind)
    axes.set_xticks(places, list(found))
    axes.set_xlabel("logits of missing classes in the local softmax")
    axes.set_ylabel("distance")
    axes.set_title("How far a class's proxy moves in one local round", loc="left", fontsize=11)
    axes.legend(frameon=False, title="the client's classes", fontsize=9, title_fontsize=9)
    bare(axes)
    return figure


def own_models(results: dict[str, fedmap.Result]) -> Figure:
    """Before and after a client's round, by method."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    both = figure.subplots(1, 2, sharey=True)
    for axes, (name, result) in zip(both, results.items(), strict=True):
        for number, (color, label) in LINES.items():
            seen = [mean(one[number] for one in record["clients"]) for record in result.rounds]
            line = smooth(100 * np.array(seen), SMOOTH)
            axes.plot(np.arange(1, len(line) + 1), line, color=color, linewidth=2, label=label)
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xlabel(f"round (mean of {SMOOTH})")
        bare(axes)
    figure.axes[0].set_ylabel("accuracy on own test samples, %")
    figure.axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    return figure


def goals(page: str) -> Figure:
    """Every method by both accuracies, from the table of all methods."""
    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes, known = figure.subplots(), measured(page)
    shown: list[tuple[float, float]] = []
    first = [name for name in SPOKEN_OF if name in known]
    for name in (*first, *(name for name in known if name not in first)):
        global_accuracy, personal = known[name]
        color, size = (MISSING, 40) if name in SPOKEN_OF else (OBSERVED, 18)
        axes.scatter(global_accuracy, personal, color=color, s=size, linewidth=0)
        near = [abs(x - global_accuracy) < 0.8 and abs(y - personal) < 0.28 for x, y in shown]
        if not any(near):  # one name on another could not be read
            axes.annotate(name, known[name], xytext=(5, 3), textcoords="offset points", fontsize=8)
            shown.append(known[name])
    named(axes)
    return figure


def named(axes: Axes) -> None:
    """What the two directions are."""
    axes.set_xlabel("global model on every class, %, last ten rounds")
    axes.set_ylabel("personal models, %, all clients")
    axes.set_title("Two goals: up and to the right is better", loc="left", fontsize=11)
    bare(axes)


def measured(page: str) -> dict[str, tuple[float, float]]:
    """Global accuracy (last ten rounds) and personal accuracy (all clients) of each method."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| [")]
    cells = {re.findall(r"\[(.+?)\]", row[0])[0]: (row[2], row[5]) for row in rows}
    known = {name: both for name, both in cells.items() if both[0] != "-"}
    return {name: (float(a.split()[0]), float(b.split()[0])) for name, (a, b) in known.items()}


def main(out: Path) -> None:
    """All pictures."""
    federation = fedmap.partition(fedmap.load("fashion-mini"), clients=20, seed=0)
    methods = {"FedAvg: its own training of the download": "fedavg", "MAP: its HPM": "map"}
    results = {
        title: fedmap.run(method, federation, net="lenet", rounds=ROUNDS, workers=2)
        for title, method in methods.items()
    }
    start = next(iter(results.values()))
    save(moved(federation, start), out / "proxies.png", 110)
    save(own_models(results), out / "own-models.png", 110)
    save(goals((DOCS / "methods/README.md").read_text()), out / "goals.png", 110)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "images/concepts")
