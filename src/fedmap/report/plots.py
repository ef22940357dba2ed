"""Pictures: accuracy curves of runs, and which client holds which classes."""

from collections.abc import Collection, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.simulate.result import Result

COLORS = [
    "#4C566A",
    "#D08700",
    "#2A7F9E",
    "#B3262E",
    "#5B8C3E",
    "#7B4EA3",
    "#C2568C",
    "#8A6D3B",
    "#1F9E89",
    "#999999",
]
DASHES = ["-", "--", ":", "-."]
OVER = (0, (3, 3))  # a line that lies on another one has gaps to see it through
SMOOTH = 5  # rounds in the mean that a thick line shows
MOST_DOTS = 60  # clients: more of them are drawn as a raster
MOST_NAMES = 30  # classes: more of them are not named
TITLES = {
    "global_accuracy": "Global model, on every class",
    "personal_accuracy": "Personal models, each on its client's own classes",
}


def save(figure: Figure, path: Path, dpi: int = 160) -> Path:
    """Write the picture in the format of the path's ending; the path."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=dpi, bbox_inches="tight")
    except ValueError as wrong:  # matplotlib's word for an ending that it does not know
        raise FedmapError(f"cannot write the picture {path}: {wrong}") from None
    except OSError as wrong:
        raise FedmapError(f"cannot write the picture {path}: {wrong.strerror}") from None
    return path


def bare(axes: Axes) -> None:
    """Only what is needed to read the numbers."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)


def name_points(
    axes: Axes, points: Mapping[str, tuple[float, float]], bold: Collection[str] = ()
) -> None:
    """Names beside their points, moved to where no other name or point stands. The limits of the
    axes must not change any more."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # only now is it known where the points will be, in pixels
    places = {name: axes.transData.transform(point) for name, point in points.items()}
    taken: list[tuple[float, float, float]] = []  # left end, right end and height of a name

    def covers(start: float, end: float, height: float) -> bool:
        names = any(start < e and end > s and abs(height - h) < 12 for s, e, h in taken)
        return names or any(
            start + 2 < x < end - 2 and abs(height - y) < 10 for x, y in places.values()
        )

    for name in sorted(points, key=lambda name: points[name]):
        (x, y), length = places[name], 18 + 5.6 * len(name)
        side, dy = next(  # the nearest, on the right if there is room
            (side, dy)
            for n in count()
            for dy in (6 * n, -6 * n)
            for side in (0, -1)
            if not covers(x + side * length, x + (side + 1) * length, y + dy)
        )
        taken.append((x + side * length, x + (side + 1) * length, y + dy))
        look: dict[str, Any] = {"fontsize": 7, "weight": "bold" if name in bold else "normal"}
        look |= {"ha": "right" if side else "left", "va": "center"}
        if dy:
            look["arrowprops"] = {"arrowstyle": "-", "color": "#AAAAAA", "linewidth": 0.5}
        where = (-8 if side else 8, 0.72 * dy)  # in points, of which 72 are 100 pixels
        axes.annotate(name, points[name], xytext=where, textcoords="offset points", **look)


def smooth(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Mean over the last `window` rounds; over fewer at the beginning."""
    sums = np.cumsum(np.insert(values, 0, 0.0))
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    means: NDArray[np.float64] = (sums[ends] - sums[starts]) / (ends - starts)
    return means


def curves(results: dict[str, list[Result]], path: Path, dpi: int = 160) -> Path:
    """Save the picture that `curves_figure` draws."""
    return save(curves_figure(results), path, dpi)


def curves_figure(results: dict[str, list[Result]]) -> Figure:
    """Both accuracies by round, one line for each method: the mean over seeds of the last five
    rounds, in the band of their standard deviation. With one seed, single rounds are thin."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    several = any(len(runs) > 1 for runs in results.values())
    for axes, name in zip(figure.subplots(1, 2), TITLES, strict=True):
        drawn: list[NDArray[np.float64]] = []
        for i, (method, runs) in enumerate(results.items()):
            seeds = by_round(runs, name)
            if seeds is None:
                continue
            steady = np.array([smooth(one, SMOOTH) for one in seeds])
            over = any(np.allclose(steady.mean(0), line, atol=0.05) for line in drawn)
            drawn.append(steady.mean(0))
            dash = OVER if over else DASHES[i // len(COLORS) % len(DASHES)]
            color = COLORS[i % len(COLORS)]
            draw_curve(axes, seeds, steady, label=method, color=color, linestyle=dash)
        axes.set_title(TITLES[name], loc="left", fontsize=11)
        thin = "band: deviation over seeds" if several else "thin: as it is"
        axes.set_xlabel(f"round (line: mean of five; {thin})")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("accuracy, %")
        bare(axes)
    add_legend(figure, len(results))
    return figure


def draw_curve(
    axes: Axes, seeds: NDArray[np.float64], steady: NDArray[np.float64], color: str, **look: Any
) -> None:
    """One method's line with its band, or with its single rounds."""
    rounds = np.arange(1, seeds.shape[1] + 1)
    mean = steady.mean(0)
    if len(seeds) > 1:
        spread = steady.std(0, ddof=1)
        axes.fill_between(rounds, mean - spread, mean + spread, color=color, alpha=0.12, lw=0)
    else:
        axes.plot(rounds, seeds[0], linewidth=0.7, alpha=0.35, color=color)
    axes.plot(rounds, mean, linewidth=2, color=color, **look)


def add_legend(figure: Figure, methods: int) -> None:
    """One legend for both pictures: a method without a global model is on the right alone."""
    fullest = max(figure.axes, key=lambda axes: len(axes.lines))
    if fullest.lines:
        few = methods <= 6
        fullest.legend(
            frameon=False, loc="lower right", ncols=1 if few else 2, fontsize=9 if few else 6
        )


def by_round(runs: list[Result], name: str) -> NDArray[np.float64] | None:
    """An accuracy in per cent, a row for each run; None where there is no run, or the method has no
    such number. Of runs that stopped at different rounds, as many rounds as all have."""
    seeds = [[record[name] for record in run.rounds] for run in runs]
    if not seeds or None in seeds[0]:
        return None
    shortest = min(map(len, seeds))
    return np.array([one[:shortest] for one in seeds], float) * 100


def holdings(federation: Federation, path: Path) -> Path:
    """Save the picture that `holdings_figure` draws."""
    return save(holdings_figure(federation), path)


def holdings_figure(federation: Federation) -> Figure:
    """Which client holds how many training samples of which class: dots for few clients, a raster
    for many."""
    counts = federation.counts.numpy()
    clients, classes = counts.shape
    many = clients > MOST_DOTS or classes > MOST_NAMES
    figure = Figure(figsize=(10, 4.2 if classes <= MOST_NAMES else 7), layout="constrained")
    axes = figure.subplots()
    if many:
        raster(figure, axes, counts)
    else:
        dots(axes, counts)
        if federation.named and clients <= MOST_NAMES:
            axes.set_xticks(range(clients), federation.client_names)
    if classes <= MOST_NAMES:
        axes.set_yticks(range(classes), federation.dataset.classes)
    axes.set_xlabel("client")
    missing = (~federation.observed).float().sum(1).mean()
    size = "" if many else f"; the largest dot is {counts.max()} training samples"
    axes.set_title(
        f"Who holds what: a client misses {missing:.1f} of {classes} classes on average{size}",
        loc="left",
        fontsize=11,
    )
    return figure


def raster(figure: Figure, axes: Axes, counts: NDArray[np.int64]) -> None:
    """One colored cell for each client and class that it holds."""
    image = axes.imshow(
        np.where(counts > 0, counts, np.nan).T,
        aspect="auto",
        interpolation="nearest",
        cmap="viridis",
        origin="lower",
    )
    figure.colorbar(image, label="training samples", pad=0.01)


def dots(axes: Axes, counts: NDArray[np.int64]) -> None:
    """One dot for each client and class that it holds, as large as the number of samples."""
    clients, classes = counts.shape
    who, what = np.nonzero(counts)
    sizes = 260 * counts[who, what] / counts.max()
    axes.scatter(who, what, s=sizes, color="#2A7F9E", linewidth=0)
    names = [str(k) for k in range(clients)]
    axes.set_xticks(range(clients), names, fontsize=7 if clients > 30 else 9)
    axes.set_xlim(-0.7, clients - 0.3)
    axes.set_ylim(-0.7, classes - 0.3)
    bare(axes)
