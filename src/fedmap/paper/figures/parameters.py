"""MAP's parameters: alpha of the restricted softmax by the knowledge transfer and its weight, as a
scatter with FedAvg."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import ClassVar

from matplotlib.figure import Figure

from fedmap.paper.federated import (
    COLUMNS,
    FederatedRun,
    cut,
    map_beside_fedavg,
    row,
    without_diverged,
    words,
)
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.report.plots import COLORS, bare
from fedmap.report.table import Table

ALPHAS = (0.1, 0.25, 0.5, 0.75, 0.9)
TRANSFERS = (("kd", 0.01), ("kd", 0.1), ("mmd", 0.01), ("mmd", 0.1))
MARKERS = ("o", "s", "^", "D")
PREFERRED = "alpha 0.9, kd 0.01"


def group(alpha: float, transfer: str, weight: float) -> str:
    return f"alpha {alpha:g}, {transfer} {weight:g}"


SETTINGS = {
    group(alpha, transfer, weight): {"alpha": alpha, "transfer": transfer, "weight": weight}
    for alpha in ALPHAS
    for transfer, weight in TRANSFERS
}


class Parameters(Study):
    line = "MAP with 20 settings of its parameters, beside FedAvg"
    paper = "The figure of the parameter studies"
    columns: ClassVar[Sequence[str]] = [column.name for column in COLUMNS[:6]]

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return (
            self.columns
            if scale == "paper"
            else self.columns[:3]
            if scale == "small"
            else self.columns[:1]
        )

    def cuts(self, scale: Scale) -> list[str]:
        more = {"paper": [], "small": ["3 of 6 columns"], "smoke": ["one column"]}[scale]
        return [*words(cut(scale)), *more]

    def work(self, choice: Choice) -> list[FederatedRun]:
        return map_beside_fedavg(choice, SETTINGS)

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [row(run, root) for run in self.work(choice) if run.done(root)]

    def report(self, rows: list[Row]) -> Report:
        rows, lost = without_diverged(rows)
        groups = list(dict.fromkeys(r["group"] for r in rows))
        points = {
            name: (average(rows, name, "global_last_10"), average(rows, name, "personal_last_10"))
            for name in groups
        }
        columns = ", ".join(dict.fromkeys(r["column"] for r in rows))
        shown = ("global", "global_last_10", "personal", "personal_last_10")
        lines = [
            [
                "FedAvg" if name == "default" else f"MAP, {name}",
                *(f"{average(rows, name, number):.1f}" for number in shown),
            ]
            for name in groups
        ]
        head = ["run", "global, last round", "last 10", "personal, last round", "last 10"]
        table = Table(f"Accuracy in %, average over {columns}", head, lines)
        return Report(
            {"parameters": table}, {"scatter": scatter(points, columns)}, [*verdicts(points), *lost]
        )


STUDIES.add("parameters")(Parameters())


def average(rows: list[Row], name: str, number: str) -> float:
    return float(mean(r[number] for r in rows if r["group"] == name))


def scatter(points: dict[str, tuple[float, float]], columns: str) -> Figure:
    """Color is alpha, the mark is the transfer; the lines are FedAvg's accuracies."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    for i, alpha in enumerate(ALPHAS):
        for marker, (transfer, weight) in zip(MARKERS, TRANSFERS, strict=True):
            if (name := group(alpha, transfer, weight)) in points:
                axes.scatter(*points[name], color=COLORS[i + 1], marker=marker, s=42)
    for i, alpha in enumerate(ALPHAS):
        axes.scatter([], [], color=COLORS[i + 1], label=f"alpha {alpha:g}")
    for marker, (transfer, weight) in zip(MARKERS, TRANSFERS, strict=True):
        axes.scatter(
            [], [], color="#777777", marker=marker, label=f"{transfer.upper()}, weight {weight:g}"
        )
    if "default" in points:
        across, up = points["default"]
        axes.axvline(across, color="#BBBBBB", linewidth=1)
        axes.axhline(up, color="#BBBBBB", linewidth=1)
        axes.scatter(across, up, color="black", marker="*", s=120, label="FedAvg")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_xlabel("global accuracy, %")
    axes.set_ylabel("personal accuracy, %")
    axes.set_title(
        f"MAP's parameters, mean of the last ten rounds ({columns})", loc="left", fontsize=10
    )
    bare(axes)
    return figure


def verdicts(points: dict[str, tuple[float, float]]) -> list[str]:
    maps = {name: point for name, point in points.items() if name != "default"}
    sentences = []
    if "default" in points and maps:
        above = [
            sum(point[goal] > points["default"][goal] for point in maps.values()) for goal in (0, 1)
        ]
        both = sum(
            all(a > b for a, b in zip(point, points["default"], strict=True))
            for point in maps.values()
        )
        sentences.append(
            f"Of {len(maps)} settings, {above[0]} are above FedAvg in global, {above[1]} in "
            f"personal accuracy and {both} in both; "
            "the paper says all."
        )
    if PREFERRED in maps:
        ranks = [
            1 + sum(point[goal] > maps[PREFERRED][goal] for point in maps.values())
            for goal in (0, 1)
        ]
        firsts = [max(maps, key=lambda name: maps[name][goal]) for goal in (0, 1)]
        sentences.append(
            f"The paper's preferred {PREFERRED} is number {ranks[0]} in global and number "
            f"{ranks[1]} in personal accuracy; "
            f"the first are {firsts[0]} ({maps[firsts[0]][0]:.1f}) and {firsts[1]} "
            f"({maps[firsts[1]][1]:.1f})."
        )
    return sentences
