"""What it costs to know more classes than one needs: accuracy on targeted classes of a net that was
trained on them alone (M1) and of one that was trained on all (M2)."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from fedmap.client import EVALUATION_BATCH
from fedmap.paper.central import Central, shown_cuts
from fedmap.paper.finding import Estimate, Finding, Verdict, all_statements, by_seeds
from fedmap.paper.study import STUDIES, Choice, Claim, Report, Row, Scale, Study
from fedmap.report.plots import bare
from fedmap.report.table import Table
from fedmap.vector import Model

EPOCHS = 50
NET = "vgg16-bn"
TARGETS = tuple(range(10, 90, 10))
SIZES: dict[Scale, dict[str, Any]] = {
    "paper": {"data": "cifar-100", "net": NET, "epochs": EPOCHS, "threads": 2},
    # a VGG of this size learns nothing in the hours that a small scale may take; TFCNN does
    "small": {"data": "cifar-100", "net": "tfcnn", "epochs": 30},
    "smoke": {"data": "fashion-mini", "net": "lenet", "epochs": 2, "samples": 200},
}
SOME_TARGETS: dict[Scale, tuple[int, ...]] = {
    "paper": TARGETS,
    "small": (10, 20, 40, 80),
    "smoke": (2, 5),
}
CLASSES: dict[Scale, int] = {"paper": 100, "small": 100, "smoke": 10}
LEARNED = 40  # per cent that some M1 reaches once the nets have learned
DARK = "#1F5F78"


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
        name: round(100 * (outputs.argmax(1) == y[mine]).float().mean().item(), 2)
        for name, outputs in answers.items()
    }


class PartialClasses(Study):
    """One training for each number of targets (M1), and one on all classes (M2)."""

    line = (
        "Accuracy on targeted classes of CIFAR-100: trained on them alone (M1) against trained on "
        "all 100 (M2)"
    )
    paper = "The figure of the performance degradation on incomplete classes (Sect. 5.1.2)"

    def cuts(self, scale: Scale) -> list[str]:
        fewer = f"only {', '.join(map(str, SOME_TARGETS[scale]))} targeted classes"
        return shown_cuts(SIZES[scale], EPOCHS, NET) + ([] if scale == "paper" else [fewer])

    def work(self, choice: Choice) -> list[Targeted]:
        """M2 is one training, whatever the targets: both models have an output for every class and
        differ in their data alone."""
        all_targets = SOME_TARGETS[choice.scale]
        wanted = [*((n, (n,)) for n in all_targets), (CLASSES[choice.scale], all_targets)]
        size = SIZES[choice.scale] | {"data_dir": choice.data_dir}
        return [
            Targeted(classes=classes, targets=targets, lr=0.03, seed=seed, **size)
            for seed in choice.seeds
            for classes, targets in wanted
        ]

    def where(self, work: Targeted) -> Row:
        model = "M1" if len(work.targets) == 1 else "M2"
        return {"model": model, "trained_on": work.classes, "seed": work.seed}

    def report(self, rows: list[Row]) -> Report:
        tables, figures = {"accuracy": accuracy_table(rows)}, {"accuracy": figure(rows)}
        return Report(tables, figures, findings(rows))

    def claims(self) -> list[Claim]:
        text = "Other classes' samples hurt accuracy on the targeted ones"
        return [Claim(text, partial(all_statements, findings=findings))]


STUDIES.add("partial-classes")(PartialClasses())


def accuracies(rows: list[Row], model: str, name: str = "accuracy") -> dict[int, float]:
    """The mean over seeds by number of targets."""
    mine = [r for r in rows if r["model"] == model]
    return {
        n: mean(r[name] for r in mine if r["targets"] == n)
        for n in sorted({r["targets"] for r in mine})
    }


def gaps(rows: list[Row], name: str = "accuracy") -> dict[int, Estimate]:
    """M1 above M2 by number of targets, over the seeds that both have."""
    found: dict[int, dict[int, dict[str, float]]] = {}
    for r in rows:
        found.setdefault(r["targets"], {}).setdefault(r["seed"], {})[r["model"]] = r[name]
    gains = {
        n: [models["M1"] - models["M2"] for models in seeds.values() if len(models) == 2]
        for n, seeds in sorted(found.items())
    }
    return {n: Estimate.of(values) for n, values in gains.items() if values}


def figure(rows: list[Row]) -> Figure:
    """Both models' bars side by side; a mark for M2 where it chooses among the targets only."""
    drawn = Figure(figsize=(9, 4.2), layout="constrained")
    axes = drawn.subplots()
    targets, width = sorted({r["targets"] for r in rows}), 0.4
    looks = {
        "M1": (DARK, "white", "M1: trained on the targeted classes alone"),
        "M2": ("#9CCBDB", "black", "M2: trained on all classes"),
    }
    handles = []
    for i, (model, (color, text, label)) in enumerate(looks.items()):
        heights = accuracies(rows, model)
        places = np.array([targets.index(n) for n in heights]) + (i - 0.5) * width
        handles.append(axes.bar(places, list(heights.values()), width, color=color, label=label))
        axes.bar_label(handles[-1], fmt="%.1f", padding=-12, fontsize=8.5, color=text)
    # M1 hardly ever chooses a class that it has not seen, so only M2 has marks; they stand on its
    # bars
    marks = list(accuracies(rows, "M2", "accuracy_among_targets").values())
    label = "M2, choosing among the targeted classes only"
    among = axes.plot(places, marks, "D", color=DARK, markerfacecolor="white", label=label)
    axes.set_xticks(range(len(targets)), [str(n) for n in targets])
    axes.set_xlabel("number of targeted classes")
    axes.set_ylabel("test accuracy on targeted classes, %")
    title = "What training on all classes costs on the targeted ones"
    axes.set_title(title, loc="left", fontsize=11)
    axes.margins(y=0.12)
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": 3}
    drawn.legend(handles=[*handles, *among], frameon=False, fontsize=9, **place)
    bare(axes)
    return drawn


def accuracy_table(rows: list[Row]) -> Table:
    """One line for each number of targets."""
    names = {"accuracy": "", "accuracy_among_targets": ", among targets"}
    columns = [accuracies(rows, model, name) for name in names for model in ("M1", "M2")]
    titles = [f"{model}{more}" for more in names.values() for model in ("M1", "M2")]
    differences = [gaps(rows, name) for name in names]
    lines = []
    for n in sorted({r["targets"] for r in rows}):
        cells = [f"{values[n]:.1f}" if n in values else "-" for values in columns]
        cells += [str(values[n]) if n in values else "-" for values in differences]
        lines.append([str(n), *cells])
    caption = (
        "Test accuracy on the targeted classes in %, mean over seeds, and the difference ± its "
        "standard error; both models have an output for every class"
    )
    return Table(caption, ["targeted classes", *titles, "M1 above M2", "among targets"], lines)


def findings(rows: list[Row]) -> list[Finding]:
    """The paper's two statements of this figure, and the first again with the choice among the
    targets alone."""
    gap, among = gaps(rows), gaps(rows, "accuracy_among_targets")
    if not gap:
        return []
    cost = (
        "The paper's 'degradation of performance on targeted classes' when others are learned too "
        "(in part: with some numbers of classes)"
    )
    ability = (
        "That training on all classes hurts 'the ability to distinguish a definite set of partial "
        "classes' in this sense (in part: with some numbers of classes)"
    )
    by_number = f"M1 minus M2, in points by number of targeted classes: {in_words(gap)}"
    narrow = f"Where both choose among the targets only, M1 minus M2: {in_words(among)}"
    fewest = min(gap)
    short = f"M1 {gap[fewest]} from M2 with {fewest} classes, {among[fewest]} among them"
    told = [
        Finding(cost, all_or_some_above(gap), by_number, short),
        more_serious_with_fewer(gap),
        Finding(ability, all_or_some_above(among), narrow),
    ]
    if max(accuracies(rows, "M1").values()) < LEARNED:
        few = f"no accuracy reaches {LEARNED} %"
        return [f._replace(verdict=Verdict.NOT_TESTED, short=few) for f in told]
    return by_seeds(told, len({r["seed"] for r in rows}))


def in_words(gap: dict[int, Estimate]) -> str:
    """Each difference with its number of targets."""
    return ", ".join(f"{value} with {n}" for n, value in gap.items())


def all_or_some_above(gap: dict[int, Estimate]) -> Verdict:
    """M1 is above M2 with every number of targets, by the error over seeds; in part: with some."""
    above = [value.above for value in gap.values()]
    return Verdict.of(all(above), any(above))


def more_serious_with_fewer(gap: dict[int, Estimate]) -> Finding:
    """With every step to fewer targets, by the errors of both; in part: from the most to the
    fewest."""
    few_to_many = list(gap.values())
    numbers = (
        f"The degradation is {few_to_many[0]} points with {min(gap)} targets and "
        f"{few_to_many[-1]} with {max(gap)}"
    )
    statement = (
        "The paper's 'as the number of targeted classes decreases, the performance degradation "
        "becomes more serious' (in part: from the most to the fewest)"
    )
    if len(gap) < 2:
        return Finding(statement, Verdict.NOT_TESTED, numbers)
    every_step = all(a.minus(b).above for a, b in pairwise(few_to_many))
    verdict = Verdict.of(every_step, few_to_many[0].minus(few_to_many[-1]).above)
    return Finding(statement, verdict, numbers)
