"""What it costs to know more classes than one needs: accuracy on targeted classes of a net that was
trained on them alone (M1) and of one that was trained on all (M2)."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedmap.client import EVALUATION_BATCH
from fedmap.paper.central import Central, shown_cuts, verdict
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.paper.tables.table_1_2 import signed
from fedmap.report.plots import bare
from fedmap.report.table import Table
from fedmap.vector import Model

EPOCHS = 50
NET = "vgg16-bn"
TARGETS = tuple(range(10, 90, 10))
SIZES: dict[Scale, dict[str, Any]] = {
    "paper": {"data": "cifar-100", "net": NET, "epochs": EPOCHS, "threads": 2},
    "small": {"data": "cifar-100", "net": "vgg8-bn", "epochs": 10, "samples": 5000, "threads": 2},
    "smoke": {"data": "fashion-mini", "net": "lenet", "epochs": 2, "samples": 200},
}
SOME_TARGETS: dict[Scale, tuple[int, ...]] = {
    "paper": TARGETS,
    "small": (10, 20, 40, 80),
    "smoke": (2, 5),
}
CLASSES: dict[Scale, int] = {"paper": 100, "small": 100, "smoke": 10}


@dataclass(frozen=True, kw_only=True)
class Targeted(Central):
    """A training whose accuracy is measured on the first so many classes."""

    targets: tuple[int, ...]

    def measure(self, epoch: int, model: Model, gradient: Tensor) -> list[Row]:
        if epoch < self.epochs:
            return []
        x, y = self.test_data()
        with torch.inference_mode():
            logits = torch.cat([model(part) for part in torch.split(x, EVALUATION_BATCH)])
        return [target_accuracy(logits, y, n) for n in self.targets]


def target_accuracy(logits: Tensor, y: Tensor, targets: int) -> Row:
    """On the samples of the first classes: of the largest of all outputs, and of the largest among
    the targets' outputs."""
    mine = y < targets
    answers = {"accuracy": logits[mine], "accuracy_among_targets": logits[mine, :targets]}
    return {"targets": targets} | {
        name: round(100 * (its.argmax(1) == y[mine]).float().mean().item(), 2)
        for name, its in answers.items()
    }


class PartialClasses(Study):
    line = "Accuracy on targeted classes of CIFAR-100: trained on them alone (M1) against trained on all 100 (M2)"
    paper = "The figure of the performance degradation on incomplete classes (Sect. 5.1.2)"

    def cuts(self, scale: Scale) -> list[str]:
        fewer = (
            []
            if scale == "paper"
            else [f"only {', '.join(map(str, SOME_TARGETS[scale]))} targeted classes"]
        )
        return shown_cuts(SIZES[scale], EPOCHS, NET) + fewer

    def work(self, choice: Choice) -> list[Targeted]:
        """M2 is one training, whatever the targets: both models have an output for every class and
        differ in their data alone."""
        targets = SOME_TARGETS[choice.scale]
        wanted = [*((n, (n,)) for n in targets), (CLASSES[choice.scale], targets)]
        return [
            Targeted(
                classes=classes,
                targets=its,
                lr=0.03,
                seed=seed,
                data_dir=choice.data_dir,
                **SIZES[choice.scale],
            )
            for seed in choice.seeds
            for classes, its in wanted
        ]

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [
            {
                "model": "M1" if len(work.targets) == 1 else "M2",
                "trained_on": work.classes,
                "seed": work.seed,
            }
            | row
            for work in self.work(choice)
            if work.done(root)
            for row in work.measured(root)
        ]

    def report(self, rows: list[Row]) -> Report:
        return Report(
            {"accuracy": accuracy_table(rows)}, {"accuracy": figure(rows)}, findings(rows)
        )


STUDIES.add("partial-classes")(PartialClasses())


def accuracies(rows: list[Row], model: str, name: str = "accuracy") -> dict[int, float]:
    """The mean over seeds by number of targets."""
    mine = [r for r in rows if r["model"] == model]
    return {
        n: mean(r[name] for r in mine if r["targets"] == n)
        for n in sorted({r["targets"] for r in mine})
    }


def gaps(rows: list[Row], name: str = "accuracy") -> dict[int, float]:
    """M1 above M2, where both are there."""
    m1, m2 = accuracies(rows, "M1", name), accuracies(rows, "M2", name)
    return {n: m1[n] - m2[n] for n in m1 if n in m2}


def figure(rows: list[Row]) -> Figure:
    made = Figure(figsize=(9, 4.2), layout="constrained")
    axes = made.subplots()
    targets, width = sorted({r["targets"] for r in rows}), 0.4
    looks = {
        "M1": ("#1F5F78", "M1: trained on the targeted classes alone"),
        "M2": ("#9CCBDB", "M2: trained on all classes"),
    }
    for i, (model, (color, label)) in enumerate(looks.items()):
        its = accuracies(rows, model)
        places = np.array([targets.index(n) for n in its]) + (i - 0.5) * width
        drawn = axes.bar(places, list(its.values()), width, color=color, label=label)
        axes.bar_label(
            drawn,
            fmt="%.1f",
            padding=-12,
            fontsize=8.5,
            color="white" if model == "M1" else "black",
        )
        if model == "M2":  # M1 hardly ever chooses a class that it has not seen
            marks = list(accuracies(rows, model, "accuracy_among_targets").values())
            axes.plot(
                places,
                marks,
                "D",
                color="#1F5F78",
                markerfacecolor="white",
                label="M2, choosing among the targeted classes only",
            )
    axes.set_xticks(range(len(targets)), [str(n) for n in targets])
    axes.set_xlabel("number of targeted classes")
    axes.set_ylabel("test accuracy on targeted classes, %")
    axes.set_title(
        "What training on all classes costs on the targeted ones", loc="left", fontsize=11
    )
    axes.margins(y=0.12)
    among, *bars = axes.get_legend_handles_labels()[0]
    made.legend(
        handles=[*bars, among], frameon=False, fontsize=9, loc="outside lower center", ncols=3
    )
    bare(axes)
    return made


def accuracy_table(rows: list[Row]) -> Table:
    names = {"accuracy": "", "accuracy_among_targets": ", among targets"}
    columns = [accuracies(rows, model, name) for name in names for model in ("M1", "M2")]
    head = [
        "targeted classes",
        *(model + more for more in names.values() for model in ("M1", "M2")),
        "M1 above M2",
        "among targets",
    ]
    lines = []
    for n in sorted({r["targets"] for r in rows}):
        cells = [f"{its[n]:.1f}" if n in its else "-" for its in columns]
        lines.append(
            [
                str(n),
                *cells,
                *(signed(gaps(rows, name)[n]) if n in gaps(rows, name) else "-" for name in names),
            ]
        )
    return Table(
        "Test accuracy on the targeted classes in %; both models have an output for every class",
        head,
        lines,
    )


def findings(rows: list[Row]) -> list[str]:
    """The paper's two statements of this figure, and the first again with the choice among the
    targets alone."""
    gap, among = gaps(rows), gaps(rows, "accuracy_among_targets")
    if not gap:
        return []
    few_to_many = list(gap.values())
    ordered = all(a > b for a, b in pairwise(few_to_many))

    def told(its: dict[int, float]) -> str:
        return ", ".join(f"{signed(value)} with {n}" for n, value in its.items())

    def above(its: dict[int, float]) -> str:
        return verdict(
            all(value > 0 for value in its.values()), any(value > 0 for value in its.values())
        )

    return [
        f"M1 minus M2, in points by number of targeted classes: {told(gap)}. "
        "The paper's 'degradation of performance on targeted classes' when others are learned "
        f"too: {above(gap)}.",
        f"The degradation is {signed(few_to_many[0])} points with {min(gap)} targets and "
        f"{signed(few_to_many[-1])} with {max(gap)}. "
        "The paper's 'as the number of targeted classes decreases, the degradation becomes more "
        "serious': "
        f"{verdict(ordered, few_to_many[0] > few_to_many[-1])}.",
        f"Where both choose among the targets only, M1 minus M2: {told(among)}. "
        "That training on all classes hurts 'the ability to distinguish a definite set of partial "
        f"classes' in this sense: {above(among)}.",
    ]
