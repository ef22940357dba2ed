"""What a net learns of classes that it never sees: features and proxies in the plane, of LeNet with
a feature of two dimensions."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
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
from fedmap.paper.central import Central, shown_cuts, verdict
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
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
POINTS = 100  # features of a class that are kept


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
    return rows + [
        point("proxy", c, *w) for c, w in enumerate(model.net.classifier.weight.tolist())
    ]


class MissingFeatures(Study):
    line = "Features and proxies of LeNet trained on 8, 5 and 2 of the 10 classes of MNIST, with and without ReLU"
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

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [
            {"net": work.net, "observed": work.classes, "seed": work.seed} | row
            for work in self.work(choice)
            if work.done(root)
            for row in work.measured(root)
        ]

    def report(self, rows: list[Row]) -> Report:
        return Report({"proxies": proxy_table(rows)}, {"features": figure(rows)}, findings(rows))


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
        centers = {c: points.mean(0) for c, points in self.features.items()}
        spread = [
            np.linalg.norm(points - centers[c], axis=1).mean()
            for c, points in self.features.items()
        ]
        return float(
            np.mean(spread) / np.mean([np.linalg.norm(center) for center in centers.values()])
        )


def coordinates(rows: list[Row]) -> NDArray[np.float64]:
    return np.array([[r["x"], r["y"]] for r in rows], dtype=np.float64).reshape(-1, 2)


def color(label: int) -> Any:
    return matplotlib.colormaps["tab10"](label % 10)


def draw(axes: Axes, view: View) -> None:
    """Features as dots and proxies as lines from the origin, the longest of which reaches as far as
    most of the dots."""
    reach = (
        float(
            np.quantile(np.linalg.norm(np.concatenate(list(view.features.values())), axis=1), 0.95)
        )
        or 1.0
    )
    longest = float(np.linalg.norm(view.proxies, axis=1).max()) or 1.0
    for c, points in view.features.items():
        axes.scatter(points[:, 0], points[:, 1], s=5, color=color(c), alpha=0.45, linewidth=0)
    for c, w in enumerate(view.proxies):
        end = w * reach / longest
        seen = c in view.observed
        look = (
            {"color": color(c), "linestyle": "-"}
            if seen
            else {"color": "black", "linestyle": (0, (3, 2))}
        )
        axes.plot([0, end[0]], [0, end[1]], linewidth=1.6 if seen else 1.1, **look)
        # The number stands beyond the end, and never so near to the origin that all numbers fall on
        # one another.
        length = float(np.linalg.norm(end)) or 1.0
        at = end / length * max(length + 0.09 * reach, 0.2 * reach)
        box = {
            "boxstyle": "circle,pad=0.12",
            "facecolor": "white",
            "edgecolor": look["color"],
            "linewidth": 0.8,
            "alpha": 0.9,
        }
        axes.text(
            at[0],
            at[1],
            str(c),
            ha="center",
            va="center",
            fontsize=7,
            color=look["color"],
            bbox=box,
        )
        axes.update_datalim([1.08 * at])
    lost = [str(c) for c, points in view.features.items() if not points.any()]
    if lost:  # behind a ReLU a class can end where there is no gradient any more
        axes.text(
            0.03,
            0.03,
            f"every feature of class {', '.join(lost)} is 0",
            transform=axes.transAxes,
            fontsize=8,
        )
    axes.axhline(0, color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.axvline(0, color="#DDDDDD", linewidth=0.6, zorder=0)
    axes.set_aspect("equal", "datalim")
    axes.tick_params(labelsize=7)
    axes.margins(0.05)
    axes.autoscale_view()


def key(figure: Figure, *more: Line2D) -> None:
    """What dots and lines are."""
    handles = [
        Line2D(
            [],
            [],
            color="#555555",
            marker="o",
            linestyle="",
            markersize=4,
            label="feature of a test image",
        ),
        Line2D(
            [],
            [],
            color="#555555",
            linewidth=1.6,
            label="proxy of an observed class (one scale in each picture)",
        ),
        Line2D(
            [],
            [],
            color="black",
            linewidth=1.1,
            linestyle=(0, (3, 2)),
            label="proxy of a missing class",
        ),
        *more,
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9
    )


def views(rows: list[Row]) -> dict[tuple[str, int, int], View]:
    """By net, number of observed classes and seed, the nets and numbers in the paper's order."""
    keys = [
        (net, n, seed)
        for net in NETS
        for n in OBSERVED
        for seed in sorted({r["seed"] for r in rows})
    ]
    found = {k: [r for r in rows if (r["net"], r["observed"], r["seed"]) == k] for k in keys}
    return {k: View(its, set(range(k[1]))) for k, its in found.items() if its}


def accuracy(rows: list[Row], net: str, observed: int, seed: int) -> float:
    """On the observed classes, in per cent."""
    return next(
        float(r["x"])
        for r in rows
        if (r["net"], r["observed"], r["seed"], r["kind"]) == (net, observed, seed, "accuracy")
    )


def figure(rows: list[Row]) -> Figure:
    """Nets as rows, numbers of observed classes as columns; the first seed."""
    made, first = Figure(figsize=(10, 7.2), layout="constrained"), min(r["seed"] for r in rows)
    grid = made.subplots(len(NETS), len(OBSERVED), squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for (net, n, seed), view in views(rows).items():
        if seed == first:
            axes = grid[list(NETS).index(net), OBSERVED.index(n)]
            axes.set_axis_on()
            draw(axes, view)
            axes.set_title(
                f"{NETS[net]}, classes 0 to {n - 1}: accuracy {accuracy(rows, net, n, seed):.1f}%",
                loc="left",
                fontsize=9.5,
            )
            axes.set_xlabel("feature 1", fontsize=8)
            axes.set_ylabel("feature 2", fontsize=8)
    key(made)
    return made


def proxy_table(rows: list[Row]) -> Table:
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
        numbers = [
            f"{value:.2f}"
            for value in (view.norm(view.observed), view.norm(view.missing), view.looseness())
        ]
        lines.append(
            [f"{NETS[net]} #{seed}", str(n), f"{accuracy(rows, net, n, seed):.1f}", *numbers]
        )
    return Table(
        "Proxies after training (mean norms), and how loose the features of a class are",
        head,
        lines,
    )


def findings(rows: list[Row]) -> list[str]:
    """The paper's three statements of this figure."""
    seen = views(rows)
    smaller = [view.norm(view.missing) < view.norm(view.observed) for view in seen.values()]
    ratio = mean(view.norm(view.missing) / view.norm(view.observed) for view in seen.values())
    cosines = [cosine for view in seen.values() for cosine in view.against()]
    negative = sum(cosine < 0 for cosine in cosines)
    loose = {
        n: mean(view.looseness() for (_, its, _), view in seen.items() if its == n)
        for n in OBSERVED
        if any(k[1] == n for k in seen)
    }
    steps = list(pairwise(loose.values()))
    return [
        "Proxies of missing classes have a smaller norm than those of observed ones in "
        f"{sum(smaller)} of {len(smaller)} trainings, "
        f"{ratio:.2f} times theirs on average. The paper's 'a smaller norm', with and without "
        f"ReLU: {verdict(all(smaller), any(smaller))}.",
        f"{negative} of {len(cosines)} proxies of missing classes point away from the center of "
        "the observed features "
        f"(mean cosine {mean(cosines):.2f}). The paper's 'towards the negative direction of "
        "existing samples' center': "
        f"{verdict(negative == len(cosines), negative > len(cosines) / 2)}.",
        "Distance of features from their class's center, beside the centers' mean norm: "
        + ", ".join(f"{value:.2f} with {n} classes" for n, value in loose.items())
        + ". The paper's 'less compact as the number of missing classes increases': "
        + f"{verdict(bool(steps) and all(a < b for a, b in steps), bool(steps) and steps[0][0] < steps[-1][1])}.",
    ]
