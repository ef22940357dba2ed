"""What a server takes as the average of its uploads: their mean, or a rule that some bad uploads
cannot move far. Long vectors are worked on in slices, so that memory does not grow with the
uploads.

Yin et al., Byzantine-robust distributed learning: towards optimal statistical rates, ICML 2018
(median, trimmed). Blanchard et al., Machine learning with adversaries: Byzantine tolerant gradient
descent, NeurIPS 2017 (krum, multi-krum). Karimireddy, He and Jaggi, Learning from history for
Byzantine robust optimization, ICML 2021 (clipped)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.values import part

Kind = Literal["mean", "median", "trimmed", "krum", "multi-krum", "clipped"]
Entry = Sequence[Mapping[str, Tensor]]  # the dictionaries of all uploads
ROOM = 2**24  # numbers that lie in memory at a time

# The fewest uploads, beyond twice the bad ones, of the rules that are told how many are bad. Median
# and clipped withstand what is less than a half of any number.
MORE_THAN_BAD: dict[Kind, int] = {"trimmed": 1, "krum": 3, "multi-krum": 3}


class Rule(NamedTuple):
    """How the server averages, and which share of the uploads it assumes to be bad."""

    kind: Kind = "mean"
    assumed: float = 0.0

    def bad(self, uploads: int) -> int:
        """How many of so many uploads are assumed to be bad."""
        return ceil(self.assumed * uploads - 1e-9)

    def check(self, uploads: int) -> None:
        """Refuse too few uploads for what the rule is to withstand."""
        bad = self.bad(uploads)
        needed = 2 * bad + MORE_THAN_BAD.get(self.kind, -2 * bad)
        if uploads < needed:
            raise FedmapError(
                f"aggregate = '{self.kind}' with {bad} bad of {uploads} uploads in a round needs "
                f"at least {needed} uploads; ask more clients in a round (fraction) or assume "
                f"fewer attackers (assumed_attackers, now {self.assumed:g})"
            )

    def of(self, ups: Entry, name: str) -> Tensor:
        """The average of one entry by a rule other than the mean."""
        self.check(len(ups))
        bad = self.bad(len(ups))
        if self.kind == "median":
            return _by_slices(ups, name, _middle)
        if self.kind == "trimmed":
            return _by_slices(ups, name, lambda x: _between(x, bad))
        if self.kind == "clipped":
            return clipped(ups, name)
        best = ranked(ups, name, bad)[: 1 if self.kind == "krum" else len(ups) - bad]
        return _by_slices(ups, name, lambda x: x[sorted(best)].mean(0))


def _slices(ups: Entry, name: str) -> Iterator[tuple[slice, Tensor]]:
    """One entry of all uploads, a row each, some columns at a time."""
    size, width = ups[0][name].numel(), max(ROOM // len(ups), 1)
    for start in range(0, size, width):
        columns = slice(start, min(start + width, size))
        yield columns, torch.stack([part(up, name, columns) for up in ups])


def _by_slices(ups: Entry, name: str, rule: Callable[[Tensor], Tensor]) -> Tensor:
    """What a rule gives that looks at each column alone."""
    found = torch.empty_like(ups[0][name], memory_format=torch.contiguous_format)
    for columns, x in _slices(ups, name):
        found.view(-1)[columns] = rule(x)
    return found


def _between(x: Tensor, bad: int) -> Tensor:
    """The mean of each column without so many of its largest and smallest values."""
    return x.sort(0).values[bad : len(x) - bad].mean(0)


def _middle(x: Tensor) -> Tensor:
    """The median of each column, the mean of two where their number is even."""
    return _between(x, (len(x) - 1) // 2)


def ranked(ups: Entry, name: str, bad: int) -> list[int]:
    """The uploads, best first. An upload is good if its n - f - 2 nearest neighbors are near: the
    sum of their squared distances is its score. Of equal ones the first is better."""
    apart = torch.zeros(len(ups), len(ups), dtype=torch.float64)
    for _, x in _slices(ups, name):
        # From the median, so that uploads far away do not round off what the others differ in.
        x = (x - _middle(x)).double()
        products = x @ x.T
        squares = products.diagonal()
        apart += (squares[:, None] + squares - 2 * products).clamp_min(0).cpu()
    nearest = apart.fill_diagonal_(0).sort(1).values[:, 1 : len(ups) - bad - 1]
    order: list[int] = nearest.sum(1).sort(stable=True).indices.tolist()
    return order


def clipped(ups: Entry, name: str) -> Tensor:
    """v + mean_k (x_k - v) min(1, tau / ||x_k - v||): centered clipping, where v is the
    coordinates' median and tau the median of the distances from it."""
    center = _by_slices(ups, name, _middle)
    flat, squares = center.view(-1), torch.zeros(len(ups), dtype=torch.float64)
    for columns, x in _slices(ups, name):
        squares += (x - flat[columns]).double().square().sum(1).cpu()
    away = squares.sqrt()
    factors = (_middle(away) / away).nan_to_num(1.0).clamp_max(1.0).to(flat)
    for columns, x in _slices(ups, name):
        flat[columns] += (factors @ (x - flat[columns])) / len(ups)
    return center
