"""FEMNIST: convergence of four methods for two fractions of clients a round and three numbers of
local epochs."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmap.methods import METHODS
from fedmap.paper.federated import FederatedRun, cut, percent, words
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.report.plots import COLORS, bare, smooth
from fedmap.report.table import Table

FRACTIONS, EPOCHS = (0.1, 0.3), (2, 5, 10)
# so few rounds hardly begin to learn with the paper's rate of 0.004
SMALL = {"samples": 4000, "rounds": 30, "lr": 0.01}
SMOKE = {
    "data": "fashion-mini",
    "net": "lenet",
    "samples": 200,
    "clients": 10,
    "rounds": 2,
    "batch": 16,
}
GOALS = {"global": "global_accuracy", "personal": "personal_accuracy"}


class Femnist(Study):
    line = "Convergence on FEMNIST, where every client is a writer"
    paper = "The figure of convergence curves"
    columns: ClassVar[Sequence[str]] = [f"Q={q:g}, E={e}" for q in FRACTIONS for e in EPOCHS]
    methods: ClassVar[Sequence[str]] = ["fedavg", "scaffold", "fedrod", "map"]

    def cuts(self, scale: Scale) -> list[str]:
        return [
            *words(cut(scale, SMALL, SMOKE)),
            *(["the first writers that have so many samples"] if scale == "small" else []),
        ]

    def work(self, choice: Choice) -> list[FederatedRun]:
        place = {"data": "femnist", "net": "femnist"} | cut(choice.scale, SMALL, SMOKE)
        return [
            FederatedRun(choice, name, **place, fraction=q, epochs=e, method=method, seed=seed)
            for q in FRACTIONS
            for e in EPOCHS
            for name in [f"Q={q:g}, E={e}"]
            if name in choice.columns
            for seed in choice.seeds
            for method in choice.methods
        ]

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [
            {
                "column": run.column,
                "method": run.settings.method,
                "seed": run.settings.seed,
                "round": record["round"],
            }
            | {goal: percent(record[name]) for goal, name in GOALS.items()}
            for run in self.work(choice)
            if run.done(root) and not run.diverged(root)
            for record in run.result(root).rounds
        ]

    def report(self, rows: list[Row]) -> Report:
        columns, methods = (
            list(dict.fromkeys(r[name] for r in rows)) for name in ("column", "method")
        )
        there = {(r["column"], r["method"]) for r in rows}
        # a band for each fraction, one goal above the other
        wide, bands = (min(len(columns), len(EPOCHS)), -(-len(columns) // len(EPOCHS)))
        figure = Figure(figsize=(3.4 * wide, 5 * bands), layout="constrained")
        axes = figure.subplots(2 * bands, wide, squeeze=False, sharex=True)
        lines = []
        for place, column in enumerate(columns):
            band, j = divmod(place, wide)
            for i, goal in enumerate(GOALS, 2 * band):
                here = axes[i][j]
                if i == 2 * band:
                    here.set_title(column, loc="left", fontsize=10)
                if j == 0:
                    here.set_ylabel(f"{goal} accuracy, %")
                if i == 2 * bands - 1:
                    here.set_xlabel("round")
                bare(here)
                for k, method in enumerate(methods):
                    if (column, method) not in there:
                        continue
                    values = curve(rows, column, method, goal)
                    here.plot(
                        np.arange(1, len(values) + 1),
                        smooth(values, 3),
                        color=COLORS[k],
                        label=METHODS[method].__name__,
                    )
            for method in (m for m in methods if (column, m) in there):
                curves = [curve(rows, column, method, goal) for goal in GOALS]
                numbers = [
                    number for values in curves for number in (values[-1], values[-10:].mean())
                ]
                lines.append(
                    [column, METHODS[method].__name__, *(f"{number:.1f}" for number in numbers)]
                )
        axes[0][0].legend(frameon=False, fontsize=8)
        for unused in (here for here in axes.flat if not here.has_data()):
            unused.remove()
        head = [
            "column",
            "method",
            "global, last round",
            "last 10",
            "personal, last round",
            "last 10",
        ]
        whole = [
            column for column in columns if all((column, method) in there for method in methods)
        ]
        return Report(
            {"femnist": Table("FEMNIST, accuracy in %", head, lines)},
            {"curves": figure},
            verdicts(rows, whole, methods),
        )


STUDIES.add("femnist")(Femnist())


def curve(rows: list[Row], column: str, method: str, goal: str) -> NDArray[np.float64]:
    """By round, mean over seeds."""
    mine = [r for r in rows if (r["column"], r["method"]) == (column, method)]
    seeds = dict.fromkeys(r["seed"] for r in mine)
    values: NDArray[np.float64] = np.mean(
        [[r[goal] for r in mine if r["seed"] == seed] for seed in seeds], axis=0
    )
    return values


def verdicts(rows: list[Row], columns: list[str], methods: list[str]) -> list[str]:
    """The paper: MAP is better than the others under all of these settings."""
    if "map" not in methods or not columns:
        return []
    sentences = []
    for goal in GOALS:
        scores = {
            (c, m): float(curve(rows, c, m, goal)[-10:].mean()) for c in columns for m in methods
        }
        first = [c for c in columns if scores[c, "map"] >= max(scores[c, m] for m in methods)]
        sentences.append(
            f"{goal}, mean of the last ten rounds: MAP is first in {len(first)} of {len(columns)} "
            "settings; the paper says in all."
        )
    return sentences
