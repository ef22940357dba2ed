"""A model's answers, for people and for programs."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fedmap.report.table import Table
from fedmap.use.model import UsableModel
from fedmap.use.samples import read_samples


class Answers(NamedTuple):
    """For each sample the probability of each class."""

    names: list[str]  # of the samples: the file, and the row in it where it has several
    classes: tuple[str, ...]
    probabilities: Tensor

    def table(self) -> Table:
        """The likeliest class of each sample, and the second."""
        lines = []
        best = self.probabilities.topk(min(2, len(self.classes)))
        for name, shares, found in zip(self.names, *(t.tolist() for t in best), strict=True):
            likeliest, *second = [
                (self.classes[number], f"{100 * share:.1f} %")
                for number, share in zip(found, shares, strict=True)
            ]
            lines.append([name, *likeliest, " ".join(second[0]) if second else "-"])
        return Table("", ["file", "class", "probability", "second"], lines)

    def all_classes(self) -> Table:
        """The likeliest class of each sample, and the probability of every class."""
        likeliest = self.probabilities.argmax(1).tolist()
        lines = [
            [name, self.classes[best], *(f"{share:.6f}" for share in shares)]
            for name, best, shares in zip(
                self.names, likeliest, self.probabilities.tolist(), strict=True
            )
        ]
        return Table("", ["file", "class", *self.classes], lines)


def predict(model: UsableModel, paths: Iterable[Path]) -> Answers:
    """What the model says of every sample in some files and folders."""
    names: list[str] = []
    found = []
    for batch in read_samples(paths, model.notes):
        names += batch.names
        found.append(model.probabilities(batch.samples))
    return Answers(names, model.notes.classes, torch.cat(found))
