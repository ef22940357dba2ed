"""What a sweep tried, as a table and as a picture: a line for one parameter, a heat map for two,
parallel coordinates for more."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from fedmap.report.plots import bare, save
from fedmap.report.table import Table, percent

COLORMAP = "viridis"
SHOWN = {"global_accuracy": "global", "personal_accuracy_all_clients": "personal"}
MOST_CELLS = 12  # on a side of a heat map whose numbers can be read
HELD_OUT = "accuracy on held-out samples, %"
TESTED = "accuracy on the test sets, %: not to choose by"


class Tried(NamedTuple):
    """Some values, and what came of them."""

    values: dict[str, Any]
    score: float | None  # on held-out samples, the mean over seeds
    finals: list[dict[str, Any]]  # of the finished runs, one for each seed
    outcome: str

    @property
    def tested(self) -> float | None:
        """The mean of both accuracies on the test sets."""
        known = [final[name] for final in self.finals for name in SHOWN if final.get(name)]
        return mean(known) if known else None


class Scale(NamedTuple):
    """Where the values of one parameter lie on an axis: numbers as they are or by their logarithms,
    other things one after the other."""

    name: str
    values: list[Any]  # the different ones, in order
    places: list[float]
    log: bool

    @classmethod
    def of(cls, name: str, found: Sequence[Any]) -> "Scale":
        different = list(dict.fromkeys(found))
        if not all(type(value) in (int, float) for value in different):
            return cls(name, different, [float(k) for k in range(len(different))], False)
        ordered = sorted(different)
        log = ordered[0] > 0 and ordered[-1] >= 20 * ordered[0]
        return cls(name, ordered, [float(np.log10(v) if log else v) for v in ordered], log)

    def place(self, value: Any) -> float:
        return self.places[self.values.index(value)]

    def share(self, value: Any) -> float:
        """The place, from 0 for the first to 1 for the last."""
        low, high = min(self.places), max(self.places)
        return (self.place(value) - low) / (high - low) if high > low else 0.5


def tried_table(tried: Sequence[Tried]) -> Table:
    """A line for each combination, with a column for each parameter."""
    names = names_of(tried)
    lines = [
        [
            *(str(one.values.get(name, "")) for name in names),
            percent([one.score]),
            *(percent([final.get(name) for final in one.finals]) for name in SHOWN),
            one.outcome,
        ]
        for one in tried
    ]
    return Table("Accuracy in %", [*names, "held out", *SHOWN.values(), "outcome"], lines)


def names_of(tried: Sequence[Tried]) -> list[str]:
    """The parameters, in their order."""
    return list(dict.fromkeys(name for one in tried for name in one.values))


def sweep_picture(tried: Sequence[Tried], path: Path) -> Path | None:
    """Save the picture that `sweep_figure` draws; nothing where nothing has an accuracy."""
    figure = sweep_figure(tried)
    return None if figure is None else save(figure, path)


def sweep_figure(tried: Sequence[Tried]) -> Figure | None:
    """By the scores on held-out samples, or where there are none, by the test sets: then no best is
    marked."""
    chosen = any(one.score is not None for one in tried)
    reached = [(one, one.score if chosen else one.tested) for one in tried]
    points = [(one.values, 100 * value) for one, value in reached if value is not None]
    if not points:
        return None
    names = [
        name for name in names_of(tried) if len({str(values.get(name)) for values, _ in points}) > 1
    ] or names_of(tried)[:1]
    points = [(values, value) for values, value in points if all(name in values for name in names)]
    scales = [Scale.of(name, [values[name] for values, _ in points]) for name in names]
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    draw = {1: line, 2: heat_map}.get(len(scales), parallel)
    draw(figure, scales, points, HELD_OUT if chosen else TESTED)
    return figure


Points = list[tuple[dict[str, Any], float]]


def ticks(axis: Any, scale: Scale) -> None:
    """The values themselves, where they lie; of very many, some."""
    some = range(0, len(scale.values), -(-len(scale.values) // MOST_CELLS))
    labels = [f"{scale.values[k]}" for k in some]
    axis.set_ticks([scale.places[k] for k in some], labels=labels)


def line(figure: Figure, scales: list[Scale], points: Points, what: str) -> None:
    """The accuracy by the one value."""
    axes, (scale,) = figure.subplots(), scales
    ordered = sorted((scale.place(values[scale.name]), value) for values, value in points)
    axes.plot([x for x, _ in ordered], [y for _, y in ordered], "o-", color="#2A7F9E")
    if what == HELD_OUT:
        mark_best(axes, *max(ordered, key=lambda point: point[1]))
    ticks(axes.xaxis, scale)
    axes.set_xlabel(scale.name)
    axes.set_ylabel(what)
    bare(axes)


def mark_best(axes: Axes, x: float, y: float) -> None:
    """A ring around the best."""
    axes.plot([x], [y], "o", markersize=14, markerfacecolor="none", color="#B3262E")


def heat_map(figure: Figure, scales: list[Scale], points: Points, what: str) -> None:
    """A colored cell for each pair of a grid; a dot where pairs were drawn."""
    axes, (across, up) = figure.subplots(), scales
    axes.set_xlabel(across.name)
    axes.set_ylabel(up.name)
    if len(points) < len(across.values) * len(up.values) or max(map(cells, scales)) > MOST_CELLS:
        places = [(across.place(v[across.name]), up.place(v[up.name])) for v, _ in points]
        x, y = zip(*places, strict=True)
        colors = [value for _, value in points]
        dots = axes.scatter(x, y, c=colors, s=90, cmap=COLORMAP, edgecolors="white")
        if what == HELD_OUT:
            mark_best(axes, *places[int(np.argmax(colors))])
        for axis, scale in ((axes.xaxis, across), (axes.yaxis, up)):
            few_ticks(axis, scale)
        figure.colorbar(dots, label=what)
        return
    cell = np.full((len(up.values), len(across.values)), np.nan)
    for values, value in points:
        cell[up.values.index(values[up.name]), across.values.index(values[across.name])] = value
    image = axes.imshow(cell, origin="lower", aspect="auto", cmap=COLORMAP)
    figure.colorbar(image, label=what)
    middle = (np.nanmin(cell) + np.nanmax(cell)) / 2
    for (row, column), value in np.ndenumerate(cell):
        color = "white" if value < middle else "black"
        bold = "bold" if value == np.nanmax(cell) and what == HELD_OUT else "normal"
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=color, weight=bold)
    axes.set_xticks(range(len(across.values)), [str(value) for value in across.values])
    axes.set_yticks(range(len(up.values)), [str(value) for value in up.values])


def cells(scale: Scale) -> int:
    """How many cells it has on its side."""
    return len(scale.values)


def few_ticks(axis: Any, scale: Scale) -> None:
    """Of values that were drawn: round numbers, or the things themselves."""
    if not all(type(value) in (int, float) for value in scale.values):
        ticks(axis, scale)
    elif scale.log:
        whole = range(int(np.floor(scale.places[0])), int(np.ceil(scale.places[-1])) + 1)
        axis.set_ticks(list(whole), labels=[f"{10.0**k:g}" for k in whole])


def parallel(figure: Figure, scales: list[Scale], points: Points, what: str) -> None:
    """A line for each combination through its values, the best ones last and thick."""
    axes = figure.subplots()
    reached = [value for _, value in points]
    norm = Normalize(min(reached), max(reached) if max(reached) > min(reached) else None)
    colors = ScalarMappable(norm, COLORMAP)
    for values, value in sorted(points, key=lambda point: point[1]):
        heights = [scale.share(values[scale.name]) for scale in scales]
        best = value == max(reached) and what == HELD_OUT
        width, alpha = (3.0, 1.0) if best else (1.2, 0.7)
        axes.plot(heights, color=colors.to_rgba(np.array([value]))[0], linewidth=width, alpha=alpha)
    axes.set_xticks(range(len(scales)), [scale.name for scale in scales])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    for k, scale in enumerate(scales):
        axes.axvline(k, color="#999999", linewidth=0.8, zorder=0)
        some = range(0, len(scale.values), -(-len(scale.values) // 6))
        for value in [scale.values[i] for i in some]:
            axes.text(k + 0.02, scale.share(value), str(value), fontsize=8, va="center")
    axes.set_xlim(-0.1, len(scales) - 0.8)
    figure.colorbar(colors, ax=axes, label=what)
