"""The joint look: one point for each method, its global accuracy across and its personal accuracy
up, from the runs of tables 1 and 2."""

from collections.abc import Collection, Iterable
from statistics import mean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmap.methods import METHODS
from fedmap.paper.federated import FEDAVG, difference
from fedmap.paper.finding import SEEDS
from fedmap.paper.published import PUBLISHED
from fedmap.paper.study import GOALS, STUDIES, Claim, Report, Row, names_of
from fedmap.paper.tables.best_group import of, seeds_of
from fedmap.paper.tables.table_1_2 import ORDER, STEADIEST, Tables12
from fedmap.report.plots import COLORS, bare, name_points

OURS = ("map", "scamap")
PLACES = (
    "FedAvg is drawn at its mean over all of its seeds, and each method as far from it as it is "
    f"with the seeds that both have; hollow: fewer than {SEEDS} seeds."
)
Points = dict[str, tuple[float, float]]  # of each method, global and personal accuracy


class Joint(Tables12):
    """The runs of tables 1 and 2, column by column."""

    line = "Both accuracies of every method in one picture"
    paper = "The figure of the joint look"

    def report(self, rows: list[Row]) -> Report:
        return Report(figures={"joint": figure(rows)}, notes=[PLACES])

    def claims(self) -> list[Claim]:
        return []  # the tables judge the same claim column by column


STUDIES.add("joint")(Joint())


def measured(rows: list[Row], column: str) -> Points:
    """Both accuracies, the mean of the last ten rounds and of all clients, so placed that methods
    can be compared whatever seeds they have."""
    here = [r for r in rows if r["column"] == column]
    level = [of(here, FEDAVG, column, STEADIEST[goal]) for goal in GOALS]
    points = {}
    for method in ORDER if all(level) else []:
        gains = [difference(here, (method, "default"), FEDAVG, goal) for goal in GOALS]
        if gains[0] and gains[1]:
            points[method] = mean(level[0]) + gains[0].mean, mean(level[1]) + gains[1].mean
    return points


def printed(methods: Iterable[str], column: str) -> Points:
    """The paper's numbers."""
    known = [m for m in methods if (m, column) in PUBLISHED["global"]]
    return {m: (PUBLISHED["global"][m, column], PUBLISHED["personal"][m, column]) for m in known}


def figure(rows: list[Row]) -> Figure:
    """A line for each column: ours on the left, the paper's on the right."""
    columns = names_of(rows, "column")
    drawn = Figure(figsize=(10, 4.4 * len(columns)), layout="constrained")
    grid = drawn.subplots(len(columns), 2, squeeze=False)
    for column, (left, right) in zip(columns, grid, strict=True):
        ours = measured(rows, column)
        few = {m for m in ours if len(seeds_of(rows, (m, "default"), column)) < SEEDS}
        scatter(left, ours, f"{column} here: last ten rounds, all clients", few)
        scatter(right, printed(ours, column), f"{column} in the paper, last round")
    return drawn


def far_off(points: Points) -> list[str]:
    """The methods so far below the others in one accuracy that these would lie in a heap: six times
    the distance that half of them have from the middle one."""
    found = set()
    for values in zip(*points.values(), strict=True) if len(points) > 4 else ():
        middle = median(values)
        usual = max(median(abs(value - middle) for value in values), 0.5)
        found |= {m for m, v in zip(points, values, strict=True) if v < middle - 6 * usual}
    return [method for method in points if method in found]


def scatter(axes: Axes, points: Points, title: str, hollow: Collection[str] = ()) -> None:
    """A point for each method, with its name; ours behind the others, which are smaller. Who is far
    off is named with both numbers."""
    off = far_off(points)
    told = [f"{METHODS[m].__name__} ({points[m][0]:.1f}, {points[m][1]:.1f})" for m in off]
    if told:
        where: dict[str, Any] = {"transform": axes.transAxes, "fontsize": 7, "style": "italic"}
        axes.text(0.01, 0.02, f"far below: {', '.join(told)}", **where)
    points = {method: point for method, point in points.items() if method not in off}
    for method, (across, up) in points.items():
        look: dict[str, Any] = {"edgecolor": COLORS[2], "s": 26, "marker": "o", "zorder": 4}
        if method in OURS:
            look = {"edgecolor": COLORS[3], "s": 60, "marker": "D", "zorder": 3}
        inside = "white" if method in hollow else look["edgecolor"]
        axes.scatter(across, up, facecolor=inside, **look)
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("global accuracy, %")
    axes.set_ylabel("personal accuracy, %")
    axes.margins(0.12)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right + 0.1 * (right - left))  # room for the last name
    bare(axes)
    shown = {METHODS[method].__name__: point for method, point in points.items()}
    name_points(axes, shown, [METHODS[method].__name__ for method in OURS])
