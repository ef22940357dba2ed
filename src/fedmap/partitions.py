"""Which client holds which samples. A partition draws one owner for every training sample, so each sample is held
exactly once; it knows labels only, nothing of images, methods or engines."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from fedmap.errors import FedmapError
from fedmap.registry import Registry

Ints = NDArray[np.int64]


class PartitionParams(BaseModel):
    """Base of every partition's parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Labels(NamedTuple):
    """What a partition sees: the label of every training sample, how many classes and clients there are."""

    labels: Ints
    classes: int
    clients: int


class Partition(NamedTuple):
    """A way to share out samples: its parameters and the function that draws an owner for each sample."""

    params: type[PartitionParams]
    draw: Callable[[Labels, PartitionParams, np.random.Generator], Ints]

    @property
    def line(self) -> str:
        return (self.params.__doc__ or "").strip().splitlines()[0]


PARTITIONS: Registry[Partition] = Registry("partition")


class IncompleteParams(PartitionParams):
    """Each client draws c from {2..C}, then c classes; a class's samples are shared among the clients that drew it."""

    size_sigma: float = Field(0.0, ge=0, le=3, description="log-normal spread of the clients' sizes; the paper has none")


def draw_incomplete(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """The paper's scene (Sect. 5.2.1): clients hold incomplete class sets and are nearly balanced over what they hold."""
    assert isinstance(params, IncompleteParams)
    clients, classes = given.clients, given.classes
    how_many = rng.integers(min(2, classes), classes + 1, size=clients)
    rank = rng.random((clients, classes)).argsort(1).argsort(1)
    holds = rank < how_many[:, None]
    for c in np.flatnonzero(~holds.any(0)):  # the union of all clients' classes is the whole set
        holds[rng.integers(clients), c] = True
    size = np.exp(params.size_sigma * rng.standard_normal(clients))
    # Dividing by the number of classes gives few-class clients a larger share of each, so that sizes stay nearly equal.
    return share_out(given, holds * (size / holds.sum(1))[:, None], rng)


PARTITIONS.add("incomplete")(Partition(IncompleteParams, draw_incomplete))


def share_out(given: Labels, wish: NDArray[np.float64], rng: np.random.Generator) -> Ints:
    """Owners such that each class's samples are split in proportion to its column of `wish` (clients x classes)."""
    owner = np.empty(len(given.labels), np.int64)
    by_class = np.argsort(given.labels, kind="stable")
    bounds = np.searchsorted(given.labels[by_class], np.arange(given.classes + 1))
    for c in range(given.classes):
        samples = by_class[bounds[c] : bounds[c + 1]]
        counts = proportional(wish[:, c], len(samples))
        owner[rng.permutation(samples)] = np.repeat(np.arange(given.clients), counts)
    return at_least_two_each(given, owner, wish, rng)


def proportional(wish: NDArray[np.float64], total: int) -> Ints:
    """Whole numbers in proportion to `wish` that sum to `total` (largest remainders)."""
    exact = wish / wish.sum() * total
    counts: Ints = np.floor(exact).astype(np.int64)
    short = total - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    return counts


def at_least_two_each(given: Labels, owner: Ints, wish: NDArray[np.float64], rng: np.random.Generator) -> Ints:
    """Move single samples from the largest clients to those with fewer than two: one to train on, one to test on.

    The moved sample is of a class that the receiver wished for, where a larger client has one."""
    sizes = np.bincount(owner, minlength=given.clients)
    for client in np.flatnonzero(sizes < 2):
        while sizes[client] < 2:
            spare = sizes[owner] > 2
            wished = spare & (wish[client, given.labels] > 0)
            candidates = np.flatnonzero(wished if wished.any() else spare)
            largest = candidates[sizes[owner[candidates]] == sizes[owner[candidates]].max()]
            sample = rng.choice(largest)
            sizes[owner[sample]] -= 1
            sizes[client] += 1
            owner[sample] = client
    return owner


def draw_owners(name: str, given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """Draw with the partition of this name, after a look at whether the numbers allow one."""
    if given.clients < 1:
        raise FedmapError(f"clients is {given.clients}; at least 1 is needed")
    if len(given.labels) < 2 * given.clients:
        raise FedmapError(
            f"{len(given.labels)} training samples cannot give {given.clients} clients two each (one to train on, one to test on); "
            f"at most {len(given.labels) // 2} clients are possible"
        )
    return PARTITIONS[name].draw(given, params, rng)
