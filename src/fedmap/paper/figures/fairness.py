"""Fairness: how much each client's personal accuracy changes from FedAvg to MAP, as a histogram
over all clients."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmap.paper.federated import COLUMNS, FederatedRun, cut, place, words
from fedmap.paper.published import WORSE_OFF
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.report.plots import COLORS, bare

METHODS = ("fedavg", "map")


class Fairness(Study):
    """After the last round every client is asked: FedAvg's trains the final model once more, MAP's
    takes the HPM that it keeps."""

    line = "The change of each client's personal accuracy from FedAvg to MAP"
    paper = "The figure of personalization fairness"
    columns: ClassVar[Sequence[str]] = [column.name for column in COLUMNS]

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return (
            self.columns
            if scale == "paper"
            else self.columns[:3]
            if scale == "small"
            else self.columns[:2]
        )

    def cuts(self, scale: Scale) -> list[str]:
        return words(cut(scale))

    def work(self, choice: Choice) -> list[FederatedRun]:
        return [
            FederatedRun(choice, name, **place(name, choice.scale), method=method, seed=seed)
            for name in choice.columns
            for seed in choice.seeds
            for method in METHODS
        ]

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        rows: list[Row] = []
        for run in self.work(choice):
            if run.done(root) and not run.diverged(root):
                accuracies = run.result(root).final["personal_accuracy_per_client"]
                where = {
                    "column": run.column,
                    "method": run.settings.method,
                    "seed": run.settings.seed,
                }
                rows += [
                    where | {"client": k, "accuracy": round(100 * accuracy, 3)}
                    for k, accuracy in enumerate(accuracies)
                ]
        return rows

    def report(self, rows: list[Row]) -> Report:
        changes = {
            key: change(rows, *key) for key in dict.fromkeys((r["column"], r["seed"]) for r in rows)
        }
        changes = {key: values for key, values in changes.items() if len(values)}
        wide = min(len(changes), 2 if len(changes) > 3 else 3)
        tall = math.ceil(len(changes) / wide)
        figure = Figure(figsize=(5 * wide, 3.6 * tall), layout="constrained")
        places = list(figure.subplots(tall, wide, squeeze=False).flat)
        for unused in places[len(changes) :]:
            unused.remove()
        sentences = []
        for axes, ((column, seed), values) in zip(places, changes.items(), strict=False):
            histogram(axes, values, f"{column}, seed {seed}")
            worse, better = int((values < 0).sum()), int((values > 0).sum())
            published = (
                f" (the paper: {WORSE_OFF} of 100 on Fashion-MNIST)"
                if column.startswith("fashion-mnist")
                else ""
            )
            sentences.append(
                f"{column}, seed {seed}: {worse} of {len(values)} clients are worse off with "
                f"MAP{published}, {better} better, "
                f"{len(values) - worse - better} equal; the mean change is {values.mean():+.1f} "
                f"points, the worst {values.min():+.1f}."
            )
        return Report(figures={"histogram": figure}, findings=sentences)


STUDIES.add("fairness")(Fairness())


def change(rows: list[Row], column: str, seed: int) -> NDArray[np.float64]:
    """MAP minus FedAvg for each client; empty where one of them is missing."""
    by_method = [
        [
            r["accuracy"]
            for r in rows
            if (r["column"], r["seed"], r["method"]) == (column, seed, method)
        ]
        for method in METHODS
    ]
    return np.subtract(by_method[1], by_method[0]) if all(by_method) else np.empty(0)


def histogram(axes: Axes, values: NDArray[np.float64], title: str) -> None:
    """Bars of equal width with zero as an edge, the number of clients above each."""
    width = max(2.0, np.ceil(np.ptp(values) / 12))
    edges = np.arange(np.floor(values.min() / width), np.ceil(values.max() / width) + 1) * width
    edges = edges if len(edges) > 1 else np.array([0.0, width])
    counts, _ = np.histogram(values, edges)
    colors = [COLORS[3] if right <= 0 else COLORS[2] for right in edges[1:]]
    bars = axes.bar(edges[:-1], counts, width, align="edge", color=colors, edgecolor="white")
    axes.bar_label(bars, [str(count) if count else "" for count in counts], fontsize=8)
    axes.axvline(0, color="#333333", linewidth=1)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("change of personal accuracy, points (bars left of 0: worse off)")
    axes.set_ylabel("clients")
    bare(axes)
