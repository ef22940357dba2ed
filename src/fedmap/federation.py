"""The clients, each with training and test samples and class counts, and the global test set that the server holds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedmap.data.dataset import Dataset
from fedmap.errors import FedmapError
from fedmap.params import checked
from fedmap.partitions import PARTITIONS, Ints, Labels, draw_owners
from fedmap.random import generator

TEST_SHARE = 0.2  # of each client's samples (paper, Sect. 5.2.1)


class Federation:
    """A dataset shared out among clients. Samples are kept once; a client is two lists of sample numbers."""

    def __init__(self, dataset: Dataset, owner: Ints, *, seed: int = 0, made_by: dict[str, Any] | None = None) -> None:
        self.dataset = dataset
        self.made_by = made_by or {}  # the settings that lead back to this federation, for run.toml
        clients = int(owner.max()) + 1
        sizes = np.bincount(owner, minlength=clients)
        if sizes.min() < 2:
            raise FedmapError(
                f"client {sizes.argmin()} has {sizes.min()} samples; at least 2 are needed, one to train on and one to test on"
            )
        # One random order of all samples, then grouped by owner: the first fifth of each client's samples is its test set.
        shuffled = generator(seed, "split").permutation(len(owner))
        grouped = torch.from_numpy(shuffled[np.argsort(owner[shuffled], kind="stable")])
        parts = torch.split(grouped, sizes.tolist())
        cuts = [max(int(TEST_SHARE * len(part)), 1) for part in parts]
        self.test: list[Tensor] = [part[:cut].sort().values for part, cut in zip(parts, cuts, strict=True)]
        self.train: list[Tensor] = [part[cut:].sort().values for part, cut in zip(parts, cuts, strict=True)]
        self.counts = torch.stack([torch.bincount(dataset.train_y[part], minlength=self.classes) for part in self.train])
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

    @property
    def observed(self) -> Tensor:
        """(clients, classes): does the client's training data have the class?"""
        return self.counts >= self.dataset.observed_from

    @classmethod
    def from_arrays(
        cls,
        clients: Sequence[tuple[ArrayLike | Tensor, ArrayLike | Tensor]],
        test: tuple[ArrayLike | Tensor, ArrayLike | Tensor] | None = None,
        *,
        classes: Sequence[str] | None = None,
        seed: int = 0,
    ) -> "Federation":
        """A federation of one's own arrays (numpy or torch): one pair of samples and labels for each client.

        Samples are images (n, channels, height, width), uint8 in 0..255 or float, or vectors (n, d). Without `test`, the
        global test set is the union of the clients' local tests."""
        if not clients:
            raise FedmapError("from_arrays got no clients; give a list of (samples, labels) pairs")
        pairs = [_pair(x, y, f"client {k}") for k, (x, y) in enumerate(clients)]
        shapes = {tuple(x.shape[1:]) for x, _ in pairs}
        kinds = {x.dtype for x, _ in pairs}
        if len(shapes) > 1 or len(kinds) > 1:
            raise FedmapError(f"clients' samples differ in shape or type: {sorted(map(str, shapes | kinds))}; all must be alike")
        train_x, train_y = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        test_x, test_y = _pair(*test, "test") if test is not None else (train_x[:0], train_y[:0])
        highest = max(int(y.max()) for y in (train_y, test_y) if len(y))
        names = tuple(classes) if classes else tuple(str(c) for c in range(highest + 1))
        dataset = Dataset("arrays", train_x, train_y, test_x, test_y, names)
        owner = np.repeat(np.arange(len(pairs)), [len(y) for _, y in pairs])
        return cls(dataset, owner, seed=seed, made_by={"data": "arrays", "clients": len(pairs), "seed": seed})


def _pair(x: ArrayLike | Tensor, y: ArrayLike | Tensor, whose: str) -> tuple[Tensor, Tensor]:
    samples, labels = torch.as_tensor(x), torch.as_tensor(y)
    if labels.dim() != 1 or labels.is_floating_point() or labels.dtype == torch.bool:
        raise FedmapError(f"{whose}: labels must be one row of whole numbers, not {labels.dtype} of shape {tuple(labels.shape)}")
    if len(samples) != len(labels):
        raise FedmapError(f"{whose}: {len(samples)} samples but {len(labels)} labels")
    if samples.dim() == 3:
        samples = samples.unsqueeze(1)  # grey images without a channel axis
    return samples if samples.dtype == torch.uint8 else samples.float(), labels.long()


def partition(dataset: Dataset, clients: int | None = None, *, seed: int = 0, kind: str = "incomplete", **params: Any) -> Federation:
    """Share a dataset out among clients: `kind` is one of `fedmap partitions`, `params` are its parameters."""
    wanted = checked(PARTITIONS[kind].params, params, f"partition {kind}")
    given = Labels(dataset.train_y.numpy(), len(dataset.classes), dataset.defaults.clients if clients is None else clients)
    missing = np.setdiff1d(np.arange(given.classes), given.labels)
    if len(missing):
        raise FedmapError(
            f"dataset {dataset.name} has no training sample of class {dataset.classes[missing[0]]!r}, so nobody could hold it"
        )
    owner = draw_owners(kind, given, wanted, generator(seed, "partition"))
    made_by = {"data": dataset.name, "partition": kind, "partition_params": wanted.model_dump(), "clients": given.clients, "seed": seed}
    return Federation(dataset, owner, seed=seed, made_by=made_by)
