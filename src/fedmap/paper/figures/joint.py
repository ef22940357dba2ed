"""The joint look: one point a method, its global accuracy across and its personal accuracy up, from
the runs of tables 1 and 2."""

from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmap.methods import METHODS
from fedmap.paper.published import PUBLISHED
from fedmap.paper.study import STUDIES, Report, Row
from fedmap.paper.tables.table_1_2 import Tables12, best, ordered
from fedmap.report.plots import COLORS, bare

OURS = ("map", "scamap")
# of a label, above or below its point, nearest first
PLACES = [step * 10 for n in range(20) for step in ((n, -n) if n else (0,))]


class Joint(Tables12):
    line = "Both accuracies of every method in one picture"
    paper = "The figure of the joint look"

    def report(self, rows: list[Row]) -> Report:
        columns = list(dict.fromkeys(r["column"] for r in rows))
        ours = {m: point for m in ordered(rows) if (point := measured(rows, m, columns))}
        theirs = {
            m: (
                mean(PUBLISHED["global"][m, c] for c in columns),
                mean(PUBLISHED["personal"][m, c] for c in columns),
            )
            for m in ours
        }
        better = [
            m
            for m in ours
            if m not in OURS
            and "map" in ours
            and all(a > b for a, b in zip(ours[m], ours["map"], strict=True))
        ]
        figure = Figure(figsize=(10, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        scatter(figure, left, ours, f"Here, mean of the last ten rounds ({', '.join(columns)})")
        scatter(figure, right, theirs, "The paper, the same columns, last round")
        verdict = (
            f"above MAP in both: {', '.join(better)}"
            if better
            else "no other method is above MAP in both (the paper's claim holds here)"
        )
        return Report(
            figures={"joint": figure},
            findings=[f"{len(ours)} methods on {', '.join(columns)}: {verdict}."],
        )


STUDIES.add("joint")(Joint())


def measured(rows: list[Row], method: str, columns: list[str]) -> tuple[float, float] | None:
    """Both accuracies, averaged over the columns; None where the method lacks one."""
    found = [
        [best(rows, method, column, goal) for column in columns] for goal in ("global", "personal")
    ]
    if any(cell is None for goal in found for cell in goal):
        return None
    across, up = (mean(cell["last_10"] for cell in goal if cell) for goal in found)
    return across, up


def scatter(figure: Figure, axes: Axes, points: dict[str, tuple[float, float]], title: str) -> None:
    for method, (across, up) in points.items():
        mine = method in OURS
        axes.scatter(
            across,
            up,
            s=46 if mine else 26,
            color=COLORS[3] if mine else COLORS[2],
            marker="D" if mine else "o",
            zorder=3,
        )
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("global accuracy, %")
    axes.set_ylabel("personal accuracy, %")
    axes.margins(0.12)
    bare(axes)
    figure.draw_without_rendering()  # only now is it known where the points will be, in pixels
    taken: list[tuple[float, float]] = []
    for method, (across, up) in sorted(points.items(), key=lambda item: item[1]):
        x, y = axes.transData.transform((across, up))
        dy = next(
            dy
            for dy in PLACES
            if all(abs(x - other) > 55 or abs(y + dy - height) >= 10 for other, height in taken)
        )
        taken.append((x, y + dy))
        look: dict[str, Any] = {
            "fontsize": 7,
            "weight": "bold" if method in OURS else "normal",
            "va": "center",
        }
        if dy:
            look["arrowprops"] = {"arrowstyle": "-", "color": "#AAAAAA", "linewidth": 0.5}
        axes.annotate(
            METHODS[method].__name__,
            (across, up),
            xytext=(8, 72 / 100 * dy),
            textcoords="offset points",
            **look,
        )
