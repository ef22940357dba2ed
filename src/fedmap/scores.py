"""How good answers are, from counts alone: for each class how many of its samples were given which
answer. The formulas are scikit-learn's, so that the numbers can be compared with anybody's.

A tally has the entry `confusion` (rows: the label, columns: the answer). Where that is not known,
as of sites that keep it to themselves, it has `right` and `total` of each class."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmap.values import Values

Tally = Mapping[str, Tensor]


def confusion(labels: Tensor, answers: Tensor, classes: int) -> Tensor:
    """(classes, classes): how many samples of a row's class were given a column's answer."""
    cells = torch.bincount(labels * classes + answers, minlength=classes * classes)
    return cells.view(classes, classes)


def right_and_total(tally: Tally) -> Values:
    """Of each class, how many samples were answered correctly, and how many there are."""
    if "confusion" not in tally:
        return {"right": tally["right"], "total": tally["total"]}
    matrix = tally["confusion"]
    return {"right": matrix.diagonal().clone(), "total": matrix.sum(1)}


def added(tallies: Sequence[Tally]) -> Values:
    """All of them together."""
    return {name: torch.stack([tally[name] for tally in tallies]).sum(0) for name in tallies[0]}


def accuracy(tally: Tally) -> float | None:
    """Which share of the samples is answered correctly; None where there is none."""
    counts = right_and_total(tally)
    samples = int(counts["total"].sum())
    return int(counts["right"].sum()) / samples if samples else None


def per_class(tally: Tally) -> list[float | None]:
    """The same of each class (its recall); None for a class that has no sample."""
    counts = right_and_total(tally)
    both = zip(counts["right"].tolist(), counts["total"].tolist(), strict=True)
    return [right / total if total else None for right, total in both]


def balanced_accuracy(tally: Tally) -> float | None:
    """The mean over the classes that have samples, each of which counts alike."""
    known = [share for share in per_class(tally) if share is not None]
    return sum(known) / len(known) if known else None


def macro_f1(tally: Tally) -> float | None:
    """The mean over classes of F1 = 2 TP / (2 TP + FP + FN). A class that is neither label nor
    answer does not count. None where the answers are not known."""
    if "confusion" not in tally:
        return None
    matrix = tally["confusion"].double()
    labels_and_answers = matrix.sum(1) + matrix.sum(0)
    seen = labels_and_answers > 0
    values = 2 * matrix.diagonal()[seen] / labels_and_answers[seen]
    return float(values.mean()) if len(values) else None


def report(tally: Tally | None, classes: Sequence[str], prefix: str) -> dict[str, Any]:
    """All of it by name, for `final.json`; None for what is not known."""
    matrix = None if tally is None else tally.get("confusion")
    shares = None if tally is None else dict(zip(classes, per_class(tally), strict=True))
    return {
        f"{prefix}_balanced_accuracy": None if tally is None else balanced_accuracy(tally),
        f"{prefix}_macro_f1": None if tally is None else macro_f1(tally),
        f"{prefix}_accuracy_per_class": shares,
        f"{prefix}_confusion": None if matrix is None else matrix.tolist(),
    }
