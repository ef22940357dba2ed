"""How the proxies of observed and missing classes change while a net trains on 8 of 10 classes:
norms, gradients, distances."""

from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedmap.paper.central import Central, shown_cuts, verdict
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.report.plots import bare
from fedmap.report.table import Table
from fedmap.vector import Model

OBSERVED = 8
EPOCHS = 50
NET = "vgg11-bn"
SIZES: dict[Scale, dict[str, Any]] = {
    "paper": {"data": "cifar-10", "net": NET, "epochs": EPOCHS, "threads": 2},
    "small": {"data": "cifar-10", "net": NET, "epochs": 15, "samples": 2500, "threads": 2},
    "smoke": {"data": "fashion-mini", "net": "lenet", "epochs": 2, "samples": 200},
}
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

    def measure(self, epoch: int, model: Model, gradient: Tensor) -> list[Row]:
        proxies = model.net.classifier.weight.detach()
        return proxy_statistics(epoch, proxies, gradient.view(proxies.shape), self.classes)


def proxy_statistics(epoch: int, proxies: Tensor, gradient: Tensor, observed: int) -> list[Row]:
    """Of each class the norm of its proxy and of the proxy's gradient; of the two groups of classes
    the mean distances."""
    rows = []

    def add(what: str, group: str, label: int | None, value: Tensor) -> None:
        rows.append(
            {
                "epoch": epoch,
                "what": what,
                "group": group,
                "class": label,
                "value": float(f"{value.item():.6g}"),
            }
        )

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
        # With i = j among the pairs, as the paper's formula has it: two missing classes show half
        # of their distance.
        add("distance", f"{a}-{b}", None, apart[groups[a], groups[b]].mean())
    return rows


class ProxyDrift(Study):
    line = "Norms, gradients and distances of proxies while VGG11-BN trains on 8 of the 10 classes of CIFAR-10"
    paper = "The figure of the change of observed and missing classes' proxies (Sect. 5.1.1)"

    def cuts(self, scale: Scale) -> list[str]:
        return shown_cuts(SIZES[scale], EPOCHS, NET)

    def work(self, choice: Choice) -> list[Drift]:
        return [
            Drift(
                classes=OBSERVED,
                lr=0.03,
                seed=seed,
                data_dir=choice.data_dir,
                **SIZES[choice.scale],
            )
            for seed in choice.seeds
        ]

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [
            {"seed": work.seed} | row
            for work in self.work(choice)
            if work.done(root)
            for row in work.measured(root)
        ]

    def report(self, rows: list[Row]) -> Report:
        return Report({"epochs": epoch_table(rows)}, {"proxies": figure(rows)}, findings(rows))


STUDIES.add("proxy-drift")(ProxyDrift())


def curve(rows: list[Row], what: str, group: str, label: int | None = None) -> dict[int, float]:
    """The mean by epoch, over classes (or of one class) and seeds."""
    mine = [
        r for r in rows if r["what"] == what and r["group"] == group and label in (None, r["class"])
    ]
    return {
        epoch: mean(r["value"] for r in mine if r["epoch"] == epoch)
        for epoch in sorted({r["epoch"] for r in mine})
    }


def figure(rows: list[Row]) -> Figure:
    made = Figure(figsize=(11, 3.6), layout="constrained")
    titles = {
        "norm": "Norm of proxies",
        "gradient": "Norm of the epoch's summed gradient",
        "distance": "Mean distance between proxies",
    }
    for axes, (what, title) in zip(made.subplots(1, 3), titles.items(), strict=True):
        for group in dict.fromkeys(r["group"] for r in rows if r["what"] == what):
            for c in sorted(
                {
                    r["class"]
                    for r in rows
                    if r["what"] == what and r["group"] == group and r["class"] is not None
                }
            ):
                its = curve(rows, what, group, c)
                axes.plot(
                    list(its), list(its.values()), color=COLORS[group], linewidth=0.6, alpha=0.35
                )
            its = curve(rows, what, group)
            dash = "--" if group in ("missing", "M-M") else ":" if group == "O-M" else "-"
            axes.plot(
                list(its), list(its.values()), dash, color=COLORS[group], linewidth=2, label=group
            )
        axes.set_title(title, loc="left", fontsize=11)
        axes.set_xlabel("epoch" if what == "distance" else "epoch (thin: one class; thick: mean)")
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(
            frameon=False,
            fontsize=9,
            title="O observed, M missing" if what == "distance" else "classes",
            title_fontsize=8,
        )
        bare(axes)
    return made


def epoch_table(rows: list[Row]) -> Table:
    columns = [
        (what, group)
        for what in ("norm", "gradient", "distance")
        for group in dict.fromkeys(r["group"] for r in rows if r["what"] == what)
    ]
    curves = [curve(rows, *column) for column in columns]
    lines = [
        [str(epoch), *(f"{its[epoch]:.3g}" if epoch in its else "-" for its in curves)]
        for epoch in curves[0]
    ]
    return Table(
        "Means over classes after each epoch (0: before training)",
        ["epoch", *(f"{w} {g}" for w, g in columns)],
        lines,
    )


def findings(rows: list[Row]) -> list[str]:
    """The paper's three statements of this figure."""
    norm = {group: curve(rows, "norm", group) for group in ("observed", "missing")}
    last = max(norm["missing"])
    below = [norm["missing"][epoch] < norm["observed"][epoch] for epoch in range(1, last + 1)]
    gradient = curve(rows, "gradient", "missing")
    fallen, first_largest = gradient[last] / gradient[1], gradient[1] == max(gradient.values())
    apart = {pair: curve(rows, "distance", pair) for pair in ("O-O", "M-M")}
    beside, left = apart["M-M"][1] / apart["O-O"][1], apart["M-M"][1] / apart["M-M"][0]
    return [
        f"After {last} epochs the mean norm is {norm['missing'][last]:.2f} for missing and "
        f"{norm['observed'][last]:.2f} for observed "
        "classes. The paper's 'slightly smaller than the observed classes': "
        f"{verdict(all(below), below[-1])}.",
        f"The mean gradient norm of missing classes goes from {gradient[1]:.3g} in the first epoch "
        f"to {gradient[last]:.3g} in epoch {last} "
        f"({100 * fallen:.0f}%; observed classes: "
        f"{curve(rows, 'gradient', 'observed')[last]:.3g}). The paper's 'large in the beginning "
        "and nearly zero after convergence': "
        f"{verdict(first_largest and fallen <= NEARLY_ZERO, fallen <= 0.5)}.",
        f"The M-M distance goes from {apart['M-M'][0]:.3f} before training to "
        f"{apart['M-M'][1]:.3f} after one epoch "
        f"({100 * left:.0f}% of it is left; O-O is {apart['O-O'][1]:.3f} then) and to "
        f"{apart['M-M'][last]:.3f} after {last} epochs. "
        "The paper's 'nearly zero even after only one training epoch', taken as a tenth of O-O or "
        "less: "
        f"{verdict(beside <= NEARLY_ZERO, apart['M-M'][last] <= NEARLY_ZERO * apart['O-O'][last])}.",
    ]
