"""The figure of a diagnosis: who holds what, how much, how far proxies move, and what a download
costs."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmap.diagnosis.numbers import Trained
from fedmap.federation import Federation
from fedmap.report.plots import MOST_DOTS, MOST_NAMES, bare, dots, raster

SHORT = 6  # letters of a name that stands upright
OBSERVED, MISSING, DOWNLOAD = "#2A7F9E", "#B3262E", "#D08700"


def figure(federation: Federation, trained: Sequence[Trained]) -> Figure:
    """Four pictures in one."""
    drawn = Figure(figsize=(11, 7.6), layout="constrained")
    (left, right), (below, last) = drawn.subplots(2, 2)
    holdings(drawn, left, federation)
    missing(right, federation)
    moves(below, federation, trained)
    drops(last, federation, trained)
    return drawn


def holdings(drawn: Figure, axes: Axes, federation: Federation) -> None:
    """Which client holds how many training samples of which class."""
    counts = federation.counts.numpy()
    if len(counts) > MOST_DOTS or counts.shape[1] > MOST_NAMES:
        raster(drawn, axes, counts)
    else:
        dots(axes, counts)
    if counts.shape[1] <= MOST_NAMES:
        axes.set_yticks(range(counts.shape[1]), federation.dataset.classes, parse_math=False)
    axes.set_xlabel("client")
    axes.set_title("Who holds what", loc="left", fontsize=11)


def missing(axes: Axes, federation: Federation) -> None:
    """Missing classes and sizes of all clients: one dot each."""
    missed, sizes = (~federation.observed).sum(1).numpy(), np.array(federation.sizes)
    axes.scatter(sizes, missed, s=28, color=MISSING, alpha=0.6, linewidth=0)
    axes.set_xlabel("training samples")
    axes.set_ylabel("missing classes")
    axes.set_ylim(-0.5, federation.classes)
    axes.set_xlim(left=0)
    axes.set_title("Missing classes and size of each client", loc="left", fontsize=11)
    bare(axes)


def moves(axes: Axes, federation: Federation, trained: Sequence[Trained]) -> None:
    """How far proxies move in one local round, for each client that was trained."""
    places = np.arange(len(trained))
    axes.bar(places - 0.2, [t.observed for t in trained], 0.38, color=OBSERVED, label="observed")
    far = [0.0 if t.missing is None else t.missing for t in trained]
    axes.bar(places + 0.2, far, 0.38, color=MISSING, label="missing")
    axes.set_ylabel("distance")
    title = "How far proxies move in one local round of FedAvg"
    finish(axes, federation, trained, title, "classes")


def drops(axes: Axes, federation: Federation, trained: Sequence[Trained]) -> None:
    """Accuracy on a client's own test samples after its round, and after the next download."""
    places = np.arange(len(trained))
    after = [100 * t.accuracy for t in trained]
    down, own = ([100 * getattr(t, n) for t in trained] for n in ("download", "download_own"))
    axes.vlines(places, down, after, color="#CCCCCC", linewidth=2, zorder=1)
    axes.scatter(places, after, color=OBSERVED, label="own model after its round", zorder=2)
    axes.scatter(places, down, color=MISSING, label="the next download", zorder=2)
    same = "the same, among own classes"
    axes.scatter(places, own, facecolors="none", edgecolors=DOWNLOAD, label=same, zorder=3)
    axes.set_ylim(0, 103)
    axes.set_ylabel("accuracy on own test samples, %")
    finish(axes, federation, trained, "What a download costs", "model")


def finish(
    axes: Axes, federation: Federation, trained: Sequence[Trained], title: str, what: str
) -> None:
    """Names of clients, and the legend."""
    named = federation.named
    names = [federation.client_names[t.client] if named else str(t.client) for t in trained]
    slope = 30 if max(map(len, names)) > SHORT else 0
    axes.set_xticks(range(len(trained)), names, parse_math=False, rotation=slope, fontsize=8)
    axes.set_xlabel("client, from the fewest missing classes to the most")
    axes.set_title(title, loc="left", fontsize=11)
    axes.legend(frameon=False, fontsize=8, title=what, title_fontsize=8)
    bare(axes)
