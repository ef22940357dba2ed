"""What a dataset is: images (or vectors) and labels as tensors, the class names, and how the paper
trains on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from fedmap.errors import FedmapError


@dataclass(frozen=True)
class Defaults:
    """The paper's settings for a dataset, used where the user does not say otherwise."""

    net: str = "lenet"
    clients: int = 100
    rounds: int = 150
    fraction: float = 0.2
    epochs: float = 5
    batch: int = 64
    lr: float = 0.03


# For one's own data: few clients, all of which take part.
OWN = Defaults(fraction=1.0, rounds=50, batch=32)

Scale = Literal["standard", "none"]
LARGEST = torch.finfo(torch.float32).max ** 0.5  # of a feature
CONSTANT = 1e-13  # a variance below this share of the squared mean is rounding


@dataclass(frozen=True, eq=False)
class Dataset:
    """Samples and labels. Images stay uint8 until a client uses them; vectors are float32.

    Data that comes with its clients has `owner`. If it has no test set of its own, `test_x` and
    `test_y` are empty (but of the right shape), and the federation takes the union of the clients'
    local tests as the global test set.
    """

    name: str
    train_x: Tensor  # uint8 (n, channels, height, width), or float32 (n, d)
    train_y: Tensor  # int64 (n,)
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()  # per channel, of pixels in 0..1; of vectors per feature
    std: tuple[float, ...] = ()
    scale: Scale = "none"  # what a federation does with vectors: see `standardized`
    augment: bool = False  # random crop with padding 4 and horizontal flip while training
    owner: Tensor | None = None  # int64 (n,): the client of each training sample, where known
    observed_from: int = 1  # a client observes a class from this many training samples on
    defaults: Defaults = field(default_factory=Defaults)
    client_names: tuple[str, ...] = ()  # of the owners, where the data names them
    features: tuple[str, ...] = ()  # names of the vectors' values, where the data names them
    origin: dict[str, Any] = field(default_factory=dict)  # settings that lead back to own data

    def __post_init__(self) -> None:
        self._check_part("train", self.train_x, self.train_y)
        self._check_part("test", self.test_x, self.test_y)
        train, test = tuple(self.train_x.shape[1:]), tuple(self.test_x.shape[1:])
        if len(train) not in (1, 3):
            raise FedmapError(
                f"dataset {self.name}: samples have shape {train}; "
                "(channels, height, width) or (d,) are allowed"
            )
        if train != test:
            raise FedmapError(
                f"dataset {self.name}: training samples have shape {train}, test samples {test}"
            )
        if self.owner is not None:
            self._check_owners(self.owner)

    def _check_part(self, part: str, x: Tensor, y: Tensor) -> None:
        if len(x) != len(y):
            raise FedmapError(
                f"dataset {self.name}: {len(x)} {part} samples but {len(y)} {part} labels"
            )
        if x.dtype not in (torch.uint8, torch.float32):
            raise FedmapError(
                f"dataset {self.name}: {part} samples are {x.dtype}; "
                "uint8 images or float32 values are allowed"
            )
        if x.dtype == torch.float32 and not bool(torch.isfinite(x).all()):
            row = int((~torch.isfinite(x.flatten(1))).any(1).nonzero()[0])
            raise FedmapError(
                f"dataset {self.name}: {part} sample {row} has a value that is not finite "
                "(NaN or infinity)"
            )
        if x.dtype == torch.float32 and len(x) and float(x.abs().max()) > LARGEST:
            raise self._too_large(part, x)
        if len(y) and (int(y.min()) < 0 or int(y.max()) >= len(self.classes)):
            wrong = int(y.min()) if int(y.min()) < 0 else int(y.max())
            raise FedmapError(
                f"dataset {self.name}: {part} label {wrong} is outside 0..{len(self.classes) - 1}"
            )

    def _too_large(self, part: str, x: Tensor) -> FedmapError:
        """The sentence for a value whose square is no number of 32 bits any more."""
        flat = x.flatten(1)
        row, column = divmod(int(flat.abs().argmax()), flat.shape[1])
        name = repr(self.features[column]) if self.features else str(column)
        return FedmapError(
            f"dataset {self.name}: feature {name} of {part} sample {row} is "
            f"{float(flat[row, column]):.3g}; values up to {LARGEST:.3g} are allowed, so that they "
            "can be squared: correct it or use another unit"
        )

    def _check_owners(self, owner: Tensor) -> None:
        if owner.shape != self.train_y.shape:
            raise FedmapError(
                f"dataset {self.name}: {len(self.train_y)} training samples but {len(owner)} owners"
            )
        if not len(owner) or int(owner.min()) < 0 or int(owner.max()) >= len(owner):
            raise FedmapError(
                f"dataset {self.name}: owners must be the numbers 0, 1, ... of clients, "
                "each with a training sample"
            )
        sizes = torch.bincount(owner, minlength=len(self.client_names))
        if self.client_names and len(sizes) != len(self.client_names):
            raise FedmapError(
                f"dataset {self.name}: {len(sizes)} clients "
                f"but {len(self.client_names)} client names"
            )
        if int(sizes.min()) == 0:
            empty = int(sizes.argmin())
            client = repr(self.client_names[empty]) if self.client_names else str(empty)
            raise FedmapError(f"dataset {self.name}: client {client} has no sample")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return tuple(self.train_x.shape[1:])

    def normalize(self, x: Tensor) -> Tensor:
        """Samples as the nets take them, with the dataset's mean and standard deviation."""
        return normalize(x, self.mean, self.std)

    def smaller(self, samples: int) -> "Dataset":
        """About this many of the training samples, and the same share of the test set.

        These are the first samples of every class, at least one. Of data with owners, they are all
        samples of as many of the first owners as are needed.
        """
        if samples < 1:
            raise FedmapError(f"samples is {samples}; at least 1 is needed")
        share = samples / len(self.train_y)
        if share >= 1:
            return self
        test = first_of_each_class(self.test_y, share)
        owner, names = None, self.client_names
        if self.owner is None:
            train = first_of_each_class(self.train_y, share)
        else:
            owners = int((torch.bincount(self.owner).cumsum(0) < samples).sum()) + 1
            train = self.owner < owners
            owner, names = self.owner[train], self.client_names[:owners]
        return replace(
            self,
            train_x=self.train_x[train],
            train_y=self.train_y[train],
            test_x=self.test_x[test],
            test_y=self.test_y[test],
            owner=owner,
            client_names=names,
            origin=self.origin | {"samples": samples},
        )

    def standardized(self, sums: "Sums") -> "Dataset":
        """With the mean and standard deviation of these sums, so that `normalize` brings every
        feature to mean 0 and deviation 1."""
        mean, std = sums.statistics()
        return replace(self, mean=mean, std=std)

    @property
    def black(self) -> Tensor:
        """A black pixel as `normalize` gives it: the border that `augment` adds."""
        return black(self.shape[0], self.mean, self.std)


class Sums(NamedTuple):
    """All that the statistics of vectors need. Those of several clients can be added, so that a
    site reveals no single value."""

    samples: int
    total: tuple[float, ...]  # of each feature
    squares: tuple[float, ...]

    @classmethod
    def of(cls, x: Tensor) -> "Sums":
        """Over samples (n, d)."""
        exact = x.double()
        return cls(len(x), tuple(exact.sum(0).tolist()), tuple(exact.square().sum(0).tolist()))

    @classmethod
    def added(cls, several: Sequence["Sums"]) -> "Sums":
        """Over all samples of several clients, in their order."""
        columns = zip(*(one.total for one in several), strict=True)
        squares = zip(*(one.squares for one in several), strict=True)
        samples = sum(one.samples for one in several)
        return cls(samples, tuple(map(sum, columns)), tuple(map(sum, squares)))

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each feature; a constant feature has deviation 1."""
        mean = [total / self.samples for total in self.total]
        variance = [q / self.samples - m * m for q, m in zip(self.squares, mean, strict=True)]
        std = [v**0.5 if v > CONSTANT * m * m else 1.0 for v, m in zip(variance, mean, strict=True)]
        return tuple(mean), tuple(std)


def normalize(x: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Samples as the nets take them: float32.

    Pixels (uint8) are scaled to 0..1, then, where there is a mean, shifted and scaled for each
    channel; vectors, where there is a mean, for each feature. Other samples stay as they are.
    """
    if x.dim() == 2 and mean:  # in double, because a large mean would swallow the differences
        means, stds = (torch.tensor(v, dtype=torch.double, device=x.device) for v in (mean, std))
        return x.double().sub(means).div_(stds).float()
    if x.dtype != torch.uint8:
        return x
    x = x.float().div_(255)
    if not mean:
        return x
    shift, scale = (torch.tensor(v, device=x.device).view(-1, 1, 1) for v in (mean, std))
    return x.sub_(shift).div_(scale)


def black(channels: int, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """A black pixel as `normalize` gives it, one value for each channel."""
    return normalize(torch.zeros((1, channels, 1, 1), dtype=torch.uint8), mean, std).flatten()


def first_of_each_class(labels: Tensor, share: float) -> Tensor:
    """Which samples are among the first of their class, so many that they are this share of it,
    at least one."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    for c in torch.bincount(labels).nonzero().flatten():
        (here,) = torch.nonzero(labels == c, as_tuple=True)
        chosen[here[: max(round(share * len(here)), 1)]] = True
    return chosen
