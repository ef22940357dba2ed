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

from fedmap.paper.federated import COLUMNS, FederatedRun, RunStudy, cut, place, words
from fedmap.paper.finding import Finding, Verdict, not_tested, signed
from fedmap.paper.published import WORSE_OFF
from fedmap.paper.study import STUDIES, Choice, Claim, Report, Row, Scale
from fedmap.report.plots import COLORS, bare

METHODS = ("fedavg", "map")
Changes = dict[tuple[str, int], NDArray[np.float64]]  # by column and seed, of each client


class Fairness(RunStudy):
    """After the last round every client is asked: FedAvg's trains the final model once more, MAP's
    takes the HPM that it keeps."""

    line = "The change of each client's personal accuracy from FedAvg to MAP"
    paper = "The figure of personalization fairness"
    columns: ClassVar[Sequence[str]] = [column.name for column in COLUMNS]

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[: {"small": 3, "smoke": 2}.get(scale)]

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
                settings = run.settings
                where = {"column": run.column, "method": settings.method, "seed": settings.seed}
                where["clip"] = settings.clip
                accuracies = run.result(root).final["personal_accuracy_per_client"]
                rows += [
                    where | {"client": k, "accuracy": round(100 * accuracy, 3)}
                    for k, accuracy in enumerate(accuracies)
                ]
        return rows

    def report(self, rows: list[Row]) -> Report:
        found = changes(rows)
        return Report(figures={"histogram": figure(found)}, notes=notes(found))

    def claims(self) -> list[Claim]:
        text = f"Few clients lose from FedAvg to MAP ({WORSE_OFF} of 100 on Fashion-MNIST)"
        return [Claim(text, few_lose)]


STUDIES.add("fairness")(Fairness())


def changes(rows: list[Row]) -> Changes:
    """MAP minus FedAvg for each client, where both methods are there."""
    by_method: dict[tuple[str, int], dict[str, dict[int, float]]] = {}
    for r in rows:
        methods = by_method.setdefault((r["column"], r["seed"]), {})
        methods.setdefault(r["method"], {})[r["client"]] = r["accuracy"]
    return {
        key: np.array([found["map"][k] - accuracy for k, accuracy in found["fedavg"].items()])
        for key, found in by_method.items()
        if all(method in found for method in METHODS)
    }


def worse_and_better(values: NDArray[np.float64]) -> tuple[int, int]:
    """How many clients lose, and how many gain."""
    return int((values < 0).sum()), int((values > 0).sum())


def notes(found: Changes) -> list[str]:
    """Who is worse off, column by column and seed by seed."""
    sentences = []
    for (column, seed), values in found.items():
        worse, better = worse_and_better(values)
        published = f" (the paper: {WORSE_OFF} of 100 on Fashion-MNIST)"
        sentences.append(
            f"{column}, seed {seed}: {worse} of {len(values)} clients are worse off with MAP"
            f"{published if column.startswith('fashion-mnist') else ''}, {better} better, "
            f"{len(values) - worse - better} equal; the mean change is {values.mean():+.1f} "
            f"points, the worst {values.min():+.1f}."
        )
    return sentences


def few_lose(claim: str, rows: list[Row]) -> Finding:
    """In each column, over all seeds, no larger share of the clients loses than the paper's; in
    part: fewer lose than gain."""
    by_column: dict[str, list[NDArray[np.float64]]] = {}
    for (column, _), values in changes(rows).items():
        by_column.setdefault(column, []).append(values)
    if not by_column:
        return not_tested(claim, "no column has both methods")
    parts, few, fewer = [], [], []
    for column, seeds in by_column.items():
        values = np.concatenate(seeds)
        worse, better = worse_and_better(values)
        few.append(worse <= WORSE_OFF / 100 * len(values))
        fewer.append(worse < better)
        average = signed(float(values.mean()))
        parts.append(
            f"{column}: {worse} of {len(values)} worse, {better} better, mean {average} points"
        )
    return Finding(claim, Verdict.of(all(few), all(fewer)), "; ".join(parts))


def figure(found: Changes) -> Figure:
    """One histogram for each column and seed."""
    wide = max(1, min(len(found), 2 if len(found) > 3 else 3))
    tall = max(1, math.ceil(len(found) / wide))
    drawn = Figure(figsize=(5 * wide, 3.6 * tall), layout="constrained")
    places = list(drawn.subplots(tall, wide, squeeze=False).flat)
    for unused in places[len(found) :]:
        unused.remove()
    for axes, ((column, seed), values) in zip(places, found.items(), strict=False):
        histogram(axes, values, f"{column}, seed {seed}")
    return drawn


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
