"""The clients, each with training and test samples and class counts, and the global test set that
the server holds."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmap.data.dataset import Dataset
from fedmap.data.own.arrays import Pair, from_clients
from fedmap.errors import FedmapError
from fedmap.params import checked
from fedmap.partitions import PARTITIONS, Ints, Labels, draw_owners
from fedmap.random import generator

TEST_SHARE = 0.2  # of each client's samples (paper, Sect. 5.2.1)


class Federation:
    """A dataset shared out among clients. Samples are kept once; a client is two lists of sample
    numbers."""

    def __init__(
        self, dataset: Dataset, owner: Ints, *, seed: int = 0, made_by: dict[str, Any] | None = None
    ) -> None:
        self.dataset = dataset
        self.made_by = made_by or {}  # the settings that lead back to this federation, for run.toml
        if owner.shape != dataset.train_y.shape or not len(owner):
            raise FedmapError(
                f"dataset {dataset.name}: {len(dataset.train_y)} training samples but {len(owner)} "
                "owners"
            )
        sizes = np.bincount(owner)
        # The data's own names belong to the data's own clients only.
        natural = bool(dataset.client_names) and np.array_equal(owner, np.asarray(dataset.owner))
        self.client_names = (
            dataset.client_names if natural else tuple(f"client {k}" for k in range(len(sizes)))
        )
        if sizes.min() < 2:
            raise FedmapError(
                f"{self.client_names[sizes.argmin()]} has "
                f"{'one sample' if sizes.min() else 'no sample'}; "
                "each client needs at least 2, one to train on and one to test on"
            )
        # One random order of all samples, then grouped by owner: the first fifth of each client's
        # samples is its test set.
        shuffled = generator(seed, "split").permutation(len(owner))
        grouped = shuffled[np.argsort(owner[shuffled], kind="stable")]
        place = np.arange(len(owner)) - np.repeat(sizes.cumsum() - sizes, sizes)
        tested = np.empty(len(owner), bool)
        tested[grouped] = place < np.repeat(
            np.maximum((TEST_SHARE * sizes).astype(np.int64), 1), sizes
        )
        self.test, self.train = by_client(owner, tested), by_client(owner, ~tested)
        cells = owner[~tested] * self.classes + dataset.train_y.numpy()[~tested]
        self.counts = torch.from_numpy(
            np.bincount(cells, minlength=len(self) * self.classes).reshape(len(self), self.classes)
        )
        if len(dataset.test_y):
            self.test_x, self.test_y = dataset.test_x, dataset.test_y
        else:  # the union of the local tests, as on FEMNIST
            union = torch.cat(self.test)
            self.test_x, self.test_y = dataset.train_x[union], dataset.train_y[union]

    def __len__(self) -> int:
        return len(self.train)

    def __repr__(self) -> str:
        return f"Federation({self.dataset.name}, {len(self)} clients, {len(self.dataset.train_y)} samples, {self.classes} classes)"

    @property
    def classes(self) -> int:
        return len(self.dataset.classes)

    @cached_property
    def observed(self) -> Tensor:
        """(clients, classes): does the client's training data have the class?"""
        return self.counts >= self.dataset.observed_from

    def summary(self) -> dict[str, Any]:
        """How many samples and classes the clients hold, and how many clients a class has."""
        samples, classes = self.counts.sum(1), self.observed.sum(1)
        holders = self.observed.sum(0)
        return {
            "clients": len(self),
            "training_samples_per_client": {
                "mean": float(samples.float().mean()),
                "least": int(samples.min()),
                "most": int(samples.max()),
            },
            "observed_classes_per_client": {
                "mean": float(classes.float().mean()),
                "least": int(classes.min()),
                "most": int(classes.max()),
            },
            "clients_per_class": {"least": int(holders.min()), "most": int(holders.max())},
            "global_test_samples": len(self.test_y),
        }

    @staticmethod
    def from_arrays(
        clients: Mapping[str, Pair] | Sequence[Pair],
        test: Pair | None = None,
        *,
        classes: Sequence[str] | None = None,
        seed: int = 0,
    ) -> "Federation":
        """A federation of one's own arrays (numpy or torch): one pair of samples and labels for
        each client, with names or without.

        `fedmap.data.from_clients` says what samples and labels may be. Without `test`, the global
        test set is the union of the clients' local tests."""
        named = (
            clients
            if isinstance(clients, Mapping)
            else {f"client {k}": pair for k, pair in enumerate(clients)}
        )
        return partition(from_clients(named, test, classes=classes), seed=seed)


def by_client(owner: Ints, chosen: NDArray[np.bool_]) -> list[Tensor]:
    """For each client the numbers of its chosen samples, in ascending order."""
    samples = np.flatnonzero(chosen)
    grouped = samples[np.argsort(owner[samples], kind="stable")]
    # Copies: a client that is sent to another process must not drag the numbers of all the others
    # along.
    return [
        part.clone()
        for part in torch.split(torch.from_numpy(grouped), np.bincount(owner[samples]).tolist())
    ]


def partition(
    dataset: Dataset,
    clients: int | None = None,
    *,
    seed: int = 0,
    kind: str | None = None,
    **params: Any,
) -> Federation:
    """Share a dataset out among clients: `kind` is one of `fedmap partitions`, `params` are its
    parameters.

    Without `kind`, samples that come with owners stay with them (natural), and others make the
    paper's scene (incomplete)."""
    own = None if dataset.owner is None else dataset.owner.numpy()
    if kind is None:
        kind = "incomplete" if own is None else "natural"
    wanted = checked(PARTITIONS[kind].params, params, f"partition {kind}")
    if clients is None:
        clients = (
            dataset.defaults.clients if kind != "natural" or own is None else int(own.max()) + 1
        )
    given = Labels(dataset.train_y.numpy(), len(dataset.classes), clients, own)
    missing = np.setdiff1d(np.arange(given.classes), given.labels)
    if len(missing) and kind != "natural":
        raise FedmapError(
            f"dataset {dataset.name} has no training sample of class "
            f"{dataset.classes[missing[0]]!r}, so nobody could hold it"
        )
    owner = draw_owners(kind, given, wanted, generator(seed, "partition"))
    made_by = {
        "data": dataset.name,
        "partition": kind,
        "partition_params": wanted.model_dump(),
        "clients": clients,
        "partition_seed": seed,
    }
    return Federation(dataset, owner, seed=seed, made_by=made_by)
