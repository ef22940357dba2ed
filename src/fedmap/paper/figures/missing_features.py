"""What a net learns of classes that it never sees: features and proxies in the plane, of LeNet with
a feature of two dimensions."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from statistics import mean
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor

from fedmap.client import EVALUATION_BATCH, correct_answers
from fedmap.paper.central import Central, shown_cuts
from fedmap.paper.finding import Estimate, Finding, Verdict, all_statements, by_seeds, signed
from fedmap.paper.study import STUDIES, Choice, Claim, Report, Row, Scale, Study
from fedmap.report.table import Table
from fedmap.vector import Model

NETS = {"lenet-2d-relu": "With ReLU", "lenet-2d": "Without ReLU"}
OBSERVED = (8, 5, 2)
EPOCHS = 50
SIZES: dict[Scale, dict[str, Any]] = {
    "paper": {"data": "mnist", "epochs": EPOCHS},
    "small": {"data": "mnist", "samples": 12000, "epochs": 20},
    "smoke": {"data": "fashion-mini", "samples": 200, "epochs": 2},
}
FAILED = 90  # per cent on its own classes that a training reaches unless it failed
POINTS = 100  # features of a class that are kept
# the line of a missing class's proxy
MISSING: dict[str, Any] = {"color": "black", "linewidth": 1.1, "linestyle": "--"}


@dataclass(frozen=True, kw_only=True)
class Plane(Central):
    """A training whose features and proxies are points in the plane."""

    def measure(self, epoch: int, model: Model, gradient: Tensor) -> list[Row]:
        if epoch < self.epochs:
            return []
        x, y = self.test_data()
        accuracy = 100 * correct_answers(model, x, y).float().mean().item()
        return [*in_the_plane(model, x, y, POINTS), point("accuracy", None, accuracy)]


def point(kind: str, label: int | None, x: float, y: float | None = None) -> Row:
    """A row of the CSV: a feature, a proxy, or an accuracy, which has no y."""
    return {"kind": kind, "class": label, "x": round(x, 4), "y": None if y is None else round(y, 4)}


def in_the_plane(model: Model, x: Tensor, y: Tensor, most: int) -> list[Row]:
    """The first `most` samples of each class as the model's features, and all its proxies."""
    rows = []
    for label in torch.bincount(y).nonzero().flatten().tolist():
        with torch.inference_mode():
            parts = [
                model.features(part) for part in torch.split(x[y == label][:most], EVALUATION_BATCH)
            ]
        rows += [point("feature", label, *h) for h in torch.cat(parts).tolist()]
    proxies = model.net.classifier.weight.tolist()
    return rows + [point("proxy", c, *w) for c, w in enumerate(proxies)]


class MissingFeatures(Study):
    """Six trainings: two nets, three numbers of observed classes."""

    line = (
        "Features and proxies of LeNet trained on 8, 5 and 2 of the 10 classes of MNIST, with and "
        "without ReLU"
    )
    paper = (
        "The figure of learned features and proxies with 8, 5 and 2 observed classes (Sect. 5.1.1)"
    )

    def cuts(self, scale: Scale) -> list[str]:
        return shown_cuts(SIZES[scale], EPOCHS)

    def work(self, choice: Choice) -> list[Plane]:
        size = SIZES[choice.scale]
        return [
            Plane(net=net, classes=classes, lr=0.01, seed=seed, data_dir=choice.data_dir, **size)
            for seed in choice.seeds
            for net in NETS
            for classes in OBSERVED
        ]

    def where(self, work: Plane) -> Row:
        return {"net": work.net, "observed": work.classes, "seed": work.seed}

    def report(self, rows: list[Row]) -> Report:
        tables, figures = {"proxies": proxy_table(rows)}, {"features": figure(rows)}
        return Report(tables, figures, findings(rows), failures(rows))

    def claims(self) -> list[Claim]:
        text = "Missing classes leave their proxies inaccurate and short, and features less compact"
        return [Claim(text, partial(all_statements, findings=findings))]


STUDIES.add("missing-features")(MissingFeatures())


class View:
    """One picture of the plane: features, proxies, and which classes the model was trained on."""

    def __init__(self, rows: list[Row], observed: set[int]) -> None:
        self.observed = observed
        self.proxies = coordinates([r for r in rows if r["kind"] == "proxy"])
        features = [r for r in rows if r["kind"] == "feature"]
        self.features = {
            c: coordinates([r for r in features if r["class"] == c])
            for c in dict.fromkeys(r["class"] for r in features)
        }
        self.missing = [c for c in range(len(self.proxies)) if c not in observed]

    def norm(self, classes: list[int] | set[int]) -> float:
        """Mean norm of these classes' proxies."""
        return float(np.linalg.norm(self.proxies[sorted(classes)], axis=1).mean())

    def against(self) -> list[float]:
        """The cosine between each missing class's proxy and the center of the features."""
        center = np.mean([points.mean(0) for points in self.features.values()], axis=0)
        return [
            float(w @ center / np.linalg.norm(w) / np.linalg.norm(center))
            for w in self.proxies[self.missing]
        ]

    def looseness(self) -> float:
        """Mean distance of features from their class's center, beside the mean norm of the centers:
        0 is most compact."""
        every = self.features.values()
        spread = [np.linalg.norm(points - points.mean(0), axis=1).mean() for points in every]
        norms = [np.linalg.norm(points.mean(0)) for points in every]
        return float(np.mean(spread) / np.mean(norms))


def coordinates(rows: list[Row]) -> NDArray[np.float64]:
    """The rows' points, one in each line."""
    return np.array([[r["x"], r["y"]] for r in rows], dtype=np.float64).reshape(-1, 2)


def color(label: int) -> Any:
    """Of a class."""
    return matplotlib.colormaps["tab10"](label)


def draw(axes: Axes, view: View) -> None:
    """Features as dots and proxies as lines from the origin, the longest of which reaches as far as
    most of the dots."""
    dots = np.concatenate(list(view.features.values()))
    reach = float(np.quantile(np.linalg.norm(dots, axis=1), 0.95)) or 1.0
    longest = np.linalg.norm(view.proxies, axis=1).max()
    for c, points in view.features.items():
        axes.scatter(points[:, 0], points[:, 1], s=5, color=color(c), alpha=0.45, linewidth=0)
    ring = 1.12 * float(np.linalg.norm(dots, axis=1).max()) or 1.0  # beyond every dot
    angles = apart(np.arctan2(view.proxies[:, 1], view.proxies[:, 0]))
    for c, w in enumerate(view.proxies):
        at = ring * np.array([np.cos(angles[c]), np.sin(angles[c])])
        draw_proxy(axes, c, w * reach / longest, at, observed=c in view.observed)
    lost = [str(c) for c, points in view.features.items() if not points.any()]
    if lost:  # behind a ReLU a class can end where there is no gradient any more
        note = f"every feature of class {', '.join(lost)} is 0"
        axes.text(0.03, 0.03, note, transform=axes.transAxes, fontsize=8)
    axes.axhline(0, color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.axvline(0, color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.set_aspect("equal", "datalim")
    axes.tick_params(labelsize=7)
    axes.set_xlabel("feature 1", fontsize=8)
    axes.set_ylabel("feature 2", fontsize=8)
    axes.margins(0.05)


def apart(angles: NDArray[np.float64], least: float = 0.26) -> NDArray[np.float64]:
    """The angles, moved as little as it takes to leave this much between neighbors on the circle,
    or as much as there is."""
    moved, least = np.array(angles), min(least, 2 * np.pi / len(angles))
    order = np.argsort(moved, kind="stable")
    for _ in range(1000):
        gaps = np.diff(moved[order], append=moved[order[0]] + 2 * np.pi)
        lack = np.clip(least - gaps, 0, None) / 2
        moved[order] += np.roll(lack, 1) - lack
    return moved


def draw_proxy(
    axes: Axes,
    label: int,
    end: NDArray[np.float64],
    at: NDArray[np.float64],
    observed: bool,
) -> None:
    """A line from the origin to the end, and the class's number further out in that direction."""
    look = {"color": color(label), "linewidth": 1.6} if observed else MISSING
    axes.plot([0, end[0]], [0, end[1]], **look)
    axes.plot([end[0], at[0]], [end[1], at[1]], color=look["color"], linewidth=0.4, alpha=0.5)
    box: dict[str, Any] = {"boxstyle": "circle,pad=0.12", "facecolor": "white", "linewidth": 0.8}
    text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7, "color": look["color"]}
    axes.text(
        at[0], at[1], str(label), **text, bbox=box | {"edgecolor": look["color"], "alpha": 0.9}
    )
    axes.update_datalim([1.08 * at])


def key(figure: Figure, *more: Line2D) -> None:
    """What dots and lines are, below the pictures."""
    dot: dict[str, Any] = {"color": "#555555", "marker": "o", "linestyle": "", "markersize": 4}
    line: dict[str, Any] = {"color": "#555555", "linewidth": 1.6}
    proxy = "proxy of an observed class (one scale in each picture)"
    handles = [
        Line2D([], [], **dot, label="feature of a test image"),
        Line2D([], [], **line, label=proxy),
        Line2D([], [], **MISSING, label="proxy of a missing class"),
        *more,
    ]
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": len(handles)}
    figure.legend(handles=handles, frameon=False, fontsize=9, **place)


def views(rows: list[Row]) -> dict[tuple[str, int, int], View]:
    """By net, number of observed classes and seed, the nets and numbers in the paper's order."""
    seeds = sorted({r["seed"] for r in rows})
    keys = [(net, n, seed) for net in NETS for n in OBSERVED for seed in seeds]
    found = {k: [r for r in rows if (r["net"], r["observed"], r["seed"]) == k] for k in keys}
    return {k: View(mine, set(range(k[1]))) for k, mine in found.items() if mine}


def accuracy(rows: list[Row], net: str, observed: int, seed: int) -> float:
    """On the observed classes, in per cent."""
    wanted = (net, observed, seed, "accuracy")
    names = ("net", "observed", "seed", "kind")
    return next(float(r["x"]) for r in rows if tuple(r[name] for name in names) == wanted)


def figure(rows: list[Row]) -> Figure:
    """Nets as rows, numbers of observed classes as columns; the first seed that did not fail, or
    the first one where all did."""
    drawn, seen = Figure(figsize=(10, 7.2), layout="constrained"), views(rows)
    grid = drawn.subplots(len(NETS), len(OBSERVED), squeeze=False)
    for axes, (net, n) in zip(grid.flat, product(NETS, OBSERVED), strict=True):
        seeds = [seed for a, b, seed in seen if (a, b) == (net, n)]
        well = [seed for seed in seeds if accuracy(rows, net, n, seed) >= FAILED]
        if not seeds:
            axes.set_axis_off()
            continue
        seed = (well or seeds)[0]
        draw(axes, seen[net, n, seed])
        failed = "" if well else " (failed)"
        percent = accuracy(rows, net, n, seed)
        title = f"{NETS[net]}, classes 0 to {n - 1}, seed {seed}: {percent:.1f} %{failed}"
        axes.set_title(title, loc="left", fontsize=8.5)
    key(drawn)
    return drawn


def proxy_table(rows: list[Row]) -> Table:
    """One line for each training."""
    head = [
        "LeNet",
        "observed classes",
        "accuracy on them, %",
        "norm of observed proxies",
        "of missing proxies",
        "looseness of features",
    ]
    lines = []
    for (net, n, seed), view in views(rows).items():
        numbers = (view.norm(view.observed), view.norm(view.missing), view.looseness())
        percent = f"{accuracy(rows, net, n, seed):.1f}"
        lines.append([f"{NETS[net]} #{seed}", str(n), percent, *(f"{x:.2f}" for x in numbers)])
    caption = "Proxies after training (mean norms), and how loose the features of a class are"
    return Table(caption, head, lines)


def findings(rows: list[Row]) -> list[Finding]:
    """The paper's three statements of this figure, by the trainings that did not fail."""
    seen = {key: view for key, view in views(rows).items() if accuracy(rows, *key) >= FAILED}
    if not seen:
        return []
    told = [smaller_norm(seen), away_from_the_center(seen), looser(seen)]
    return by_seeds(told, len({seed for _, _, seed in seen}))


def failures(rows: list[Row]) -> list[str]:
    """A sentence for each net and number of classes with trainings that failed."""
    every: dict[tuple[str, int], list[int]] = {}
    lost: dict[tuple[str, int], list[str]] = {}
    for net, n, seed in views(rows):
        every.setdefault((net, n), []).append(seed)
        if (percent := accuracy(rows, net, n, seed)) < FAILED:
            lost.setdefault((net, n), []).append(f"seed {seed} ({percent:.1f} %)")
    return [
        f"{NETS[net]}, {n} classes: {len(some)} of {len(every[net, n])} trainings failed and are "
        f"left out, by their accuracy on their own classes: {', '.join(some)}."
        for (net, n), some in lost.items()
    ]


def smaller_norm(seen: dict[tuple[str, int, int], View]) -> Finding:
    """In every training; in part: in some."""
    ratios = [view.norm(view.missing) / view.norm(view.observed) for view in seen.values()]
    smaller = sum(ratio < 1 for ratio in ratios)
    numbers = (
        "Proxies of missing classes have a smaller norm than those of observed ones in "
        f"{smaller} of {len(ratios)} trainings, {mean(ratios):.2f} times theirs on average"
    )
    statement = "The paper's 'a smaller norm', with and without ReLU (in part: in some trainings)"
    short = f"missing proxies' norm {Estimate.of(ratios).plain(2)} of the others'"
    return Finding(statement, Verdict.of(smaller == len(ratios), smaller > 0), numbers, short)


def away_from_the_center(seen: dict[tuple[str, int, int], View]) -> Finding:
    """All of them; in part: more than half."""
    cells: dict[tuple[str, int], list[float]] = {}
    for (net, observed, _), view in seen.items():
        cells.setdefault((net, observed), []).extend(view.against())
    cosines = [cosine for cell in cells.values() for cosine in cell]
    negative = sum(cosine < 0 for cosine in cosines)
    told = ", ".join(
        f"{sum(c < 0 for c in cell)} of {len(cell)} {NETS[net].replace('W', 'w')} and {n} classes"
        for (net, n), cell in cells.items()
    )
    numbers = (
        f"{negative} of {len(cosines)} proxies of missing classes point away from the center of "
        f"the observed features (mean cosine {signed(mean(cosines), 2)}): {told}"
    )
    statement = (
        "The paper's 'not so rigorously ... towards the negative direction of existing samples' "
        "center' (in part: more than half)"
    )
    verdict = Verdict.of(negative == len(cosines), negative > len(cosines) / 2)
    return Finding(statement, verdict, numbers)


def looser(seen: dict[tuple[str, int, int], View]) -> Finding:
    """With every step to fewer classes, by the error of the difference within a net and seed; in
    part: from the most classes to the fewest."""
    found: dict[int, dict[tuple[str, int], float]] = {}
    for (net, observed, seed), view in seen.items():
        found.setdefault(observed, {})[net, seed] = view.looseness()
    loose = {n: mean(found[n].values()) for n in OBSERVED if n in found}
    numbers = "Distance of features from their class's center, beside the centers' mean norm: "
    numbers += ", ".join(f"{value:.2f} with {n} classes" for n, value in loose.items())
    statement = (
        "The paper's 'as the number of missing classes increases, the features of observed classes "
        "become less compact' (in part: from the fewest to the most)"
    )
    if len(loose) < 2:
        return Finding(statement, Verdict.NOT_TESTED, numbers)

    def grows(many: int, few: int) -> bool:
        both = [key for key in found[many] if key in found[few]]
        gains = [found[few][key] - found[many][key] for key in both]
        return len(gains) > 1 and Estimate.of(gains).above

    steps, ends = pairwise(loose), (max(loose), min(loose))
    verdict = Verdict.of(all(grows(*step) for step in steps), grows(*ends))
    return Finding(statement, verdict, numbers)
