"""How the proxies of observed and missing classes change while a net trains on 8 of 10 classes:
norms, gradients, distances."""

from dataclasses import dataclass
from statistics import mean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedmap.nets import build
from fedmap.paper.central import Central, shown_cuts
from fedmap.paper.finding import Estimate, Finding, Verdict, by_seeds, together
from fedmap.paper.study import STUDIES, Choice, Claim, Report, Row, Scale, Study, names_of
from fedmap.report.plots import bare
from fedmap.report.table import Table
from fedmap.vector import Model

OBSERVED, MISSING = 8, 2  # classes
# The paper's formula counts each proxy's distance from itself, one pair in n of n classes. Without
# it M-M beside O-O is so many times as large.
REAL_PAIRS = (MISSING / (MISSING - 1)) / (OBSERVED / (OBSERVED - 1))
EPOCHS = 50
NET = "vgg11-bn"
SIZES: dict[Scale, dict[str, Any]] = {
    "paper": {"data": "cifar-10", "net": NET, "epochs": EPOCHS, "threads": 2},
    "small": {"data": "cifar-10", "net": NET, "epochs": 4, "threads": 2},
    "smoke": {"data": "fashion-mini", "net": "lenet", "epochs": 2, "samples": 200},
}
# how linear layers start: the standard deviation, None for PyTorch's way
RELEASED = "N(0, 0.01²), as released"
STARTS = {RELEASED: 0.01, "PyTorch's": None}
NEARLY_ZERO = 0.1  # of what it is compared with
COLORS = {
    "observed": "#2A7F9E",
    "missing": "#B3262E",
    "O-O": "#2A7F9E",
    "O-M": "#7B4EA3",
    "M-M": "#B3262E",
}


@dataclass(frozen=True, kw_only=True)
class Drift(Central):
    """A training whose proxies are measured after each epoch."""

    linear_deviation: float | None  # of linear layers at the start; None for PyTorch's way

    def fresh(self) -> Model:
        shape, classes = self.dataset.shape, len(self.dataset.classes)
        return Model(build(self.net, shape, classes, self.seed, self.linear_deviation))

    def measure(self, epoch: int, model: Model, gradient: Tensor) -> list[Row]:
        proxies = model.net.classifier.weight
        return proxy_statistics(epoch, proxies, gradient.view(proxies.shape), self.classes)


def proxy_statistics(epoch: int, proxies: Tensor, gradient: Tensor, observed: int) -> list[Row]:
    """Of each class the norm of its proxy and of the proxy's gradient; of the two groups of classes
    the mean distances."""
    rows = []

    def add(what: str, group: str, label: int | None, value: Tensor) -> None:
        where = {"epoch": epoch, "what": what, "group": group, "class": label}
        rows.append(where | {"value": float(f"{value.item():.6g}")})

    for c in range(len(proxies)):
        group = "observed" if c < observed else "missing"
        add("norm", group, c, proxies[c].norm())
        if epoch:  # before the first epoch there is no gradient
            add("gradient", group, c, gradient[c].norm())
    # The differences themselves: what cdist makes of products of large matrices is not zero for
    # equal proxies.
    apart = (proxies[:, None] - proxies[None]).norm(dim=2)
    groups = {"O": slice(0, observed), "M": slice(observed, None)}
    for a, b in (("O", "O"), ("O", "M"), ("M", "M")):
        # with i = j among the pairs, as the paper's formula has it
        add("distance", f"{a}-{b}", None, apart[groups[a], groups[b]].mean())
    return rows


class ProxyDrift(Study):
    """A training for each way to start, measured after each epoch."""

    line = (
        "Norms, gradients and distances of proxies while VGG11-BN trains on 8 of the 10 classes of "
        "CIFAR-10"
    )
    paper = "The figure of the change of observed and missing classes' proxies (Sect. 5.1.1)"

    def cuts(self, scale: Scale) -> list[str]:
        return shown_cuts(SIZES[scale], EPOCHS, NET)

    def work(self, choice: Choice) -> list[Drift]:
        size = SIZES[choice.scale] | {"data_dir": choice.data_dir}
        return [
            Drift(classes=OBSERVED, lr=0.03, seed=seed, linear_deviation=deviation, **size)
            for seed in choice.seeds
            for deviation in STARTS.values()
        ]

    def where(self, work: Drift) -> Row:
        return {"start": start_of(work), "seed": work.seed}

    def report(self, rows: list[Row]) -> Report:
        return Report({"epochs": epoch_table(rows)}, {"proxies": figure(rows)}, findings(rows))

    def claims(self) -> list[Claim]:
        text = "Proxies of missing classes are pushed early and collapse"
        return [Claim(text, pushed_and_collapsed)]


STUDIES.add("proxy-drift")(ProxyDrift())


def start_of(work: Drift) -> str:
    """How its linear layers start."""
    return next(name for name, deviation in STARTS.items() if deviation == work.linear_deviation)


def curve(rows: list[Row], what: str, group: str, label: int | None = None) -> dict[int, float]:
    """The mean by epoch, over classes (or of one class) and seeds."""
    mine = [
        r for r in rows if r["what"] == what and r["group"] == group and label in (None, r["class"])
    ]
    return {
        epoch: mean(r["value"] for r in mine if r["epoch"] == epoch)
        for epoch in sorted({r["epoch"] for r in mine})
    }


def groups_of(rows: list[Row], what: str) -> list[str]:
    """The groups of classes, or pairs of groups, that a number is measured of."""
    return names_of([r for r in rows if r["what"] == what], "group")


def figure(rows: list[Row]) -> Figure:
    """Norms, gradients and distances by epoch, a line of pictures for each way to start."""
    starts = names_of(rows, "start")
    drawn = Figure(figsize=(11, 3.4 * len(starts) + 0.2), layout="constrained")
    titles = {
        "norm": "Norm of proxies",
        "gradient": "Norm of the epoch's summed gradient",
        "distance": "Mean distance between proxies",
    }
    grid = drawn.subplots(len(starts), len(titles), squeeze=False)
    for line, start in zip(grid, starts, strict=True):
        mine = [r for r in rows if r["start"] == start]
        for axes, (what, title) in zip(line, titles.items(), strict=True):
            for group in groups_of(mine, what):
                draw(axes, mine, what, group)
            axes.set_title(f"{title}\nstart: {start}", loc="left", fontsize=10)
            decorate(axes, what == "distance")
    return drawn


def decorate(axes: Axes, distance: bool) -> None:
    """Names of axes and lines."""
    axes.set_xlabel("epoch" if distance else "epoch (thin: one class; thick: mean)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend = "O observed, M missing" if distance else "classes"
    axes.legend(frameon=False, fontsize=9, title=legend, title_fontsize=8)
    bare(axes)


def draw(axes: Axes, rows: list[Row], what: str, group: str) -> None:
    """A thin line for each class, a thick one for their mean."""
    mine = [r for r in rows if (r["what"], r["group"]) == (what, group)]
    for label in sorted({r["class"] for r in mine if r["class"] is not None}):
        values = curve(rows, what, group, label)
        look: dict[str, Any] = {"color": COLORS[group], "linewidth": 0.6, "alpha": 0.35}
        axes.plot(list(values), list(values.values()), **look)
    values = curve(rows, what, group)
    dash = "--" if group in ("missing", "M-M") else ":" if group == "O-M" else "-"
    look = {"color": COLORS[group], "linewidth": 2, "label": group}
    axes.plot(list(values), list(values.values()), dash, **look)


def epoch_table(rows: list[Row]) -> Table:
    """All means, epoch by epoch, for each way to start."""
    names = [(w, g) for w in ("norm", "gradient", "distance") for g in groups_of(rows, w)]
    lines = []
    for start in names_of(rows, "start"):
        mine = [r for r in rows if r["start"] == start]
        curves = [curve(mine, *name) for name in names]
        lines += [
            [start, str(epoch), *(f"{c[epoch]:.3g}" if epoch in c else "-" for c in curves)]
            for epoch in sorted({r["epoch"] for r in mine})
        ]
    head = ["start", "epoch", *(f"{what} {group}" for what, group in names)]
    return Table("Means over classes after each epoch (0: before training)", head, lines)


def findings(rows: list[Row]) -> list[Finding]:
    """The paper's three statements of this figure for each way to start; none before the first
    epoch."""
    found = []
    for start in names_of(rows, "start"):
        mine = [r for r in rows if r["start"] == start]
        if any(r["epoch"] for r in mine):
            told = [slightly_smaller(mine), pushed_early(mine), collapsed(mine)]
            told = [f._replace(numbers=f"Start {start}: {f.numbers}") for f in told]
            found += by_seeds(told, len({r["seed"] for r in mine}))
    return found


def pushed_and_collapsed(claim: str, rows: list[Row]) -> Finding:
    """All statements of the figure hold where linear layers start as in the authors' code; in
    part: one does, or does in part."""
    return together(claim, findings([r for r in rows if r["start"] == RELEASED]))


def by_seed(rows: list[Row], what: str, group: str) -> list[dict[int, float]]:
    """The mean over classes by epoch, with each seed."""
    seeds = names_of(rows, "seed")
    return [curve([r for r in rows if r["seed"] == seed], what, group) for seed in seeds]


def beside(rows: list[Row], what: str, missing: str, observed: str) -> list[dict[int, float]]:
    """With each seed, by epoch, how many times as large a number is for missing classes as for
    observed ones."""
    pairs = zip(by_seed(rows, what, missing), by_seed(rows, what, observed), strict=True)
    return [{epoch: ours[epoch] / theirs[epoch] for epoch in ours} for ours, theirs in pairs]


def slightly_smaller(rows: list[Row]) -> Finding:
    """After every epoch with every seed, and not less than half; in part: after the last."""
    missing, observed = curve(rows, "norm", "missing"), curve(rows, "norm", "observed")
    last = max(missing)
    ratios = beside(rows, "norm", "missing", "observed")
    always = all(0.5 <= ratio[epoch] < 1 for ratio in ratios for epoch in range(1, last + 1))
    in_the_end = all(0.5 <= ratio[last] < 1 for ratio in ratios)
    numbers = (
        f"After {last} epochs the mean norm of missing classes is {missing[last]:.2f}, "
        f"{percent([ratio[last] for ratio in ratios])} of the observed ones' {observed[last]:.2f}"
    )
    statement = (
        "The paper's 'slightly smaller than the observed classes', after every epoch with every "
        "seed (in part: after the last)"
    )
    return Finding(statement, Verdict.of(always, in_the_end), numbers)


def pushed_early(rows: list[Row]) -> Finding:
    """With every seed the first gradient is the largest and at most a tenth is left; in part: a
    half."""
    each = by_seed(rows, "gradient", "missing")
    missing, observed = curve(rows, "gradient", "missing"), curve(rows, "gradient", "observed")
    last = max(missing)
    left = [gradient[last] / gradient[1] for gradient in each]
    first_largest = all(gradient[1] == max(gradient.values()) for gradient in each)
    numbers = (
        f"The mean gradient norm of missing classes goes from {missing[1]:.3g} in the first epoch "
        f"to {missing[last]:.3g} in epoch {last} ({percent(left)} are left; observed classes: "
        f"{observed[last]:.3g})"
    )
    statement = (
        "The paper's 'large in the beginning and becomes nearly zero after convergence', taken as "
        "a tenth left (in part: a half)"
    )
    return Finding(
        statement, Verdict.of(first_largest and max(left) <= NEARLY_ZERO, max(left) <= 0.5), numbers
    )


def collapsed(rows: list[Row]) -> Finding:
    """With every seed missing proxies are close after one epoch, beside observed ones; in part:
    after the last."""
    distance = curve(rows, "distance", "M-M")
    last = max(distance)
    ratios = beside(rows, "distance", "M-M", "O-O")
    early, late = ([ratio[epoch] for ratio in ratios] for epoch in (1, last))
    real = [percent([REAL_PAIRS * ratio for ratio in some]) for some in (early, late)]
    numbers = (
        f"The M-M distance goes from {distance[0]:.3f} before training to {distance[1]:.3f} after "
        f"one epoch, {percent(early)} of O-O then, and to {distance[last]:.3f} after {last} "
        f"epochs, {percent(late)} of O-O. The paper's formula counts each proxy's distance from "
        f"itself too; without it these are {real[0]} and {real[1]}"
    )
    statement = (
        "The paper's 'nearly zero even after only one training epoch', taken as a tenth of O-O or "
        "less (in part: after the last epoch, not after one)"
    )
    verdict = Verdict.of(max(early) <= NEARLY_ZERO, max(late) <= NEARLY_ZERO)
    short = (
        f"distance of missing proxies {percent(early)} of the others' after one epoch, "
        f"{percent(late)} after {last}"
    )
    return Finding(statement, verdict, numbers, short)


def percent(shares: list[float]) -> str:
    """Shares of several seeds in per cent, with their error."""
    return Estimate.of([100 * share for share in shares]).plain(1) + " %"
