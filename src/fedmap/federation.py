"""The clients, each with its own training and test samples, and the global test set that the
server holds."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmap import own_code
from fedmap.data import DATASETS
from fedmap.data.dataset import Dataset, Scale, Sums, black, normalize
from fedmap.data.own.arrays import Items, Pair, from_clients
from fedmap.errors import FedmapError
from fedmap.params import checked
from fedmap.partitions import Ints, Labels, draw_owners, find_partition
from fedmap.random import generator

TEST_SHARE = 0.2  # of each client's samples (paper, Sect. 5.2.1)
SAMPLED = 1000  # samples of an official dataset that its checksum is made of
PART = 1000  # samples of the global test set that are asked for at a time
Samples = tuple[Tensor, Tensor]  # as they are stored, and their labels


@dataclass(frozen=True, eq=False)
class ClientData:
    """One client's own samples. It knows nothing of other clients, so a site that has only its own
    files is the same thing."""

    number: int
    train: Samples
    test: Samples
    counts: Tensor  # training samples of each class
    observed: Tensor  # for each class: does the training data have it?
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: bool  # random crop and flip while training
    observed_from: int = 1  # training samples from which on a class counts as observed
    validation: Samples | None = None  # kept out of training, for choosing

    @classmethod
    def of(cls, dataset: Dataset, number: int = 0, seed: int = 0) -> "ClientData":
        """A site's data: every training sample of the dataset is its own. The split into training
        and test samples is drawn from (seed, number) and depends on these samples alone; a dataset
        with a test set of its own is split already."""
        n = len(dataset.train_y)
        x, y = dataset.train_x, dataset.train_y
        if len(dataset.test_y) and n:
            train, test = (x, y), (dataset.test_x, dataset.test_y)
        elif n < 2:
            raise FedmapError(f"dataset {dataset.name}: {few_samples(n)}")
        else:
            tested = int(size_of_test_set(np.array(n)))
            test, train = drawn((x, y), tested, generator(seed, "split", number))
        counts = torch.bincount(train[1], minlength=len(dataset.classes))
        return cls(
            number,
            train,
            test,
            counts,
            counts >= dataset.observed_from,
            dataset.mean,
            dataset.std,
            dataset.augment,
            dataset.observed_from,
        )

    def with_validation(self, share: float, seed: int) -> "ClientData":
        """The same client, that keeps a share of its training samples for choosing. They are drawn
        from (seed, number)."""
        kept = kept_for_choosing(len(self.train[1]), share)
        if not kept:
            return self
        validation, train = drawn(self.train, kept, generator(seed, "validation", self.number))
        counts = torch.bincount(train[1], minlength=len(self.counts))
        observed = counts >= self.observed_from
        return replace(self, train=train, validation=validation, counts=counts, observed=observed)

    def normalize(self, x: Tensor) -> Tensor:
        """Samples as the nets take them."""
        return normalize(x, self.mean, self.std)

    @property
    def black(self) -> Tensor:
        """A black pixel as `normalize` gives it: the border that `augment` adds."""
        return black(self.train[0].shape[1], self.mean, self.std)


class AnyFederation(Protocol):
    """What a run needs to know of a federation. `Federation` has everybody's samples; in a
    deployment each member has only its own."""

    @property
    def dataset(self) -> Dataset:
        """Shape, classes and scaling that all clients have in common."""
        ...

    @property
    def origin(self) -> dict[str, Any]:
        """The settings that lead back to this federation, for run.toml."""
        ...

    @property
    def client_names(self) -> Sequence[str]: ...

    @property
    def sizes(self) -> Sequence[int]:
        """How many training samples each client has, where that is known."""
        ...

    @property
    def server_has_test(self) -> bool:
        """Has the server test samples that are nobody's own?"""
        ...

    @property
    def test_parts(self) -> Sequence[int]:
        """The global test set is asked for in these parts."""
        ...

    @property
    def marks(self) -> dict[str, Any]:
        """To tell another federation by, for run.toml."""
        ...

    def __len__(self) -> int: ...

    def client(self, number: int) -> ClientData:
        """One client's own data."""
        ...

    def test_part(self, key: int) -> Samples:
        """One part of the global test set."""
        ...


class Federation:
    """A dataset divided among clients. Samples are kept once; a client is two lists of sample
    numbers until `client` gives its own data."""

    def __init__(
        self, dataset: Dataset, owner: Ints, *, seed: int = 0, origin: dict[str, Any] | None = None
    ) -> None:
        self.dataset = dataset
        self.origin = origin or {}  # the settings that lead back to this federation, for run.toml
        if owner.shape != dataset.train_y.shape or not len(owner):
            raise FedmapError(
                f"dataset {dataset.name}: {len(dataset.train_y)} training samples "
                f"but {len(owner)} owners"
            )
        if len(dataset.classes) < 2:
            raise FedmapError(
                f"dataset {dataset.name}: all samples are of class {dataset.classes[0]!r}; at "
                "least two classes are needed"
            )
        sizes = np.bincount(owner)
        # The data's own names belong to the data's own clients only.
        self.named = bool(dataset.client_names) and np.array_equal(owner, np.asarray(dataset.owner))
        self.client_names = (
            dataset.client_names if self.named else tuple(f"client {k}" for k in range(len(sizes)))
        )
        if sizes.min() < 2:
            name = self.client_names[sizes.argmin()]
            raise FedmapError(f"{name} has {few_samples(int(sizes.min()))}")
        tested = drawn_test_samples(owner, sizes, seed)
        self.test, self.train = by_client(owner, tested), by_client(owner, ~tested)
        if dataset.scale == "standard":  # over what is trained on, and nothing else
            sums = [Sums.of(dataset.train_x.index_select(0, index)) for index in self.train]
            self.dataset = dataset.standardized(Sums.added(sums))
        cells = owner[~tested] * self.classes + dataset.train_y.numpy()[~tested]
        counts = np.bincount(cells, minlength=len(self) * self.classes)
        self.counts = torch.from_numpy(counts.reshape(len(self), self.classes))
        self.server_has_test = len(dataset.test_y) > 0
        if self.server_has_test:
            self.test_x, self.test_y = dataset.test_x, dataset.test_y
        else:  # the union of the local tests, as on FEMNIST
            union = torch.cat(self.test)
            self.test_x, self.test_y = dataset.train_x[union], dataset.train_y[union]

    def __len__(self) -> int:
        return len(self.train)

    def __repr__(self) -> str:
        samples = len(self.dataset.train_y)
        return (
            f"Federation({self.dataset.name}, {len(self)} clients, "
            f"{samples} samples, {self.classes} classes)"
        )

    @property
    def classes(self) -> int:
        """How many classes there are in the whole federation."""
        return len(self.dataset.classes)

    @property
    def sizes(self) -> list[int]:
        """How many training samples each client has."""
        return [len(index) for index in self.train]

    @cached_property
    def observed(self) -> Tensor:
        """(clients, classes): does the client's training data have the class?"""
        return self.counts >= self.dataset.observed_from

    def client(self, number: int) -> ClientData:
        """One client's own data."""
        return ClientData(
            number,
            self._samples(self.train[number]),
            self._samples(self.test[number]),
            self.counts[number],
            self.observed[number],
            self.dataset.mean,
            self.dataset.std,
            self.dataset.augment,
            self.dataset.observed_from,
        )

    @property
    def test_parts(self) -> range:
        """The global test set is asked for in these parts."""
        return range(-(-len(self.test_y) // PART))

    def test_part(self, key: int) -> Samples:
        """One part of the global test set."""
        here = slice(key * PART, (key + 1) * PART)
        return self.test_x[here], self.test_y[here]

    @cached_property
    def marks(self) -> dict[str, Any]:
        """To tell another federation by: checksums of who holds which labels, and of the samples
        themselves. Official files are checked before they are read, so of these some will do."""
        dataset = self.dataset
        held = [dataset.train_y[index] for index in (*self.train, *self.test)]
        holdings = torch.cat([*held, *self.train, *self.test])
        marks: dict[str, Any] = {"clients": list(self.client_names)} if self.named else {}
        marks |= {"samples": len(dataset.train_y)}
        marks |= {"fingerprint": zlib.crc32(holdings.numpy().tobytes())}
        most = SAMPLED if dataset.name in DATASETS else None
        first = zlib.crc32(some_of(dataset.train_x, most).data)
        marks["content"] = zlib.crc32(some_of(dataset.test_x, most).data, first)
        marks["test_labels"] = zlib.crc32(dataset.test_y.numpy().tobytes())
        return marks

    def _samples(self, index: Tensor) -> Samples:
        x, y = self.dataset.train_x, self.dataset.train_y
        return x.index_select(0, index), y.index_select(0, index)  # far faster than x[index]

    def summary(self) -> dict[str, Any]:
        """What a person wants to know of the clients, in numbers."""
        sizes, held = self.counts.sum(1).float(), self.observed.sum(1).float()
        holders = self.observed.sum(0)
        return {
            "clients": len(self),
            "training_samples_per_client": extent(sizes),
            "observed_classes_per_client": extent(held),
            "clients_per_class": {"least": int(holders.min()), "most": int(holders.max())},
            "global_test_samples": len(self.test_y),
        }

    @staticmethod
    def from_arrays(
        clients: Mapping[str, Pair | Items] | Sequence[Pair | Items],
        test: Pair | Items | None = None,
        *,
        classes: Sequence[str] | None = None,
        seed: int = 0,
        scale: Scale = "standard",
    ) -> "Federation":
        """A federation of one's own arrays (numpy or torch): one pair of samples and labels for
        each client, with names or without. A `torch.utils.data.Dataset`, or a `datasets` object of
        Hugging Face, may stand for a pair.

        `fedmap.data.from_clients` says what samples and labels may be. Without `test`, the global
        test set is the union of the clients' local tests. Vectors are scaled to mean 0 and
        deviation 1 of every feature over the clients' training samples, unless `scale` is none."""
        if isinstance(clients, Mapping):
            dataset = from_clients(clients, test, classes=classes, scale=scale)
        else:
            pairs = {f"client {k}": pair for k, pair in enumerate(clients)}
            unnamed = from_clients(pairs, test, classes=classes, scale=scale)
            dataset = replace(unnamed, client_names=())
        return partition(dataset, seed=seed)


def some_of(samples: Tensor, most: int | None) -> NDArray[Any]:
    """At most so many of the samples, from all over."""
    step = -(-len(samples) // most) if most else 1
    return np.ascontiguousarray(samples[:: max(step, 1)].numpy())


def few_samples(count: int) -> str:
    """What to say of a client that cannot be split."""
    return (
        f"{'one sample' if count else 'no sample'}; "
        "each client needs at least 2, one to train on and one to test on"
    )


def extent(values: Tensor) -> dict[str, float]:
    """Mean, least and most."""
    return {"mean": float(values.mean()), "least": int(values.min()), "most": int(values.max())}


def kept_for_choosing(samples: int, share: float | None) -> int:
    """How many of a client's training samples it keeps: at least one, but never its last; none
    without a share."""
    return min(max(int(share * samples + 1e-9), 1), samples - 1) if share else 0


def drawn(samples: Samples, count: int, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """So many of the samples, and the others, each in their order."""
    x, y = samples
    order = torch.from_numpy(rng.permutation(len(y)))
    first, rest = order[:count].sort().values, order[count:].sort().values
    return (x[first], y[first]), (x[rest], y[rest])


def size_of_test_set(samples: Ints) -> Ints:
    """How many of a client's samples are its test set: a fifth, at least one."""
    sizes: Ints = np.maximum((TEST_SHARE * samples).astype(np.int64), 1)
    return sizes


def drawn_test_samples(owner: Ints, sizes: Ints, seed: int) -> NDArray[np.bool_]:
    """Which samples are in their owner's test set.

    One random order of all samples is grouped by owner, and the first fifth of each client is its
    test set. A site cannot draw like this, because it does not know the others' samples; the
    simulator keeps the rule, so that its numbers stay the same."""
    shuffled = generator(seed, "split").permutation(len(owner))
    grouped = shuffled[np.argsort(owner[shuffled], kind="stable")]
    place = np.arange(len(owner)) - np.repeat(sizes.cumsum() - sizes, sizes)
    tested = np.empty(len(owner), bool)
    tested[grouped] = place < np.repeat(size_of_test_set(sizes), sizes)
    return tested


def by_client(owner: Ints, chosen: NDArray[np.bool_]) -> list[Tensor]:
    """For each client the numbers of its chosen samples, in ascending order."""
    samples = np.flatnonzero(chosen)
    grouped = samples[np.argsort(owner[samples], kind="stable")]
    parts = torch.split(torch.from_numpy(grouped), np.bincount(owner[samples]).tolist())
    # Copies: a client sent to another process must not drag the numbers of all the others along.
    return [part.clone() for part in parts]


def partition(
    dataset: Dataset,
    clients: int | None = None,
    *,
    seed: int = 0,
    kind: str | None = None,
    **params: Any,
) -> Federation:
    """Divide a dataset among clients: `kind` is one of `fedmap partitions`, `params` are its
    parameters.

    Without `kind`, samples that come with owners stay with them (natural), and others make the
    paper's scene (incomplete)."""
    if clients is not None and type(clients) is not int:
        raise FedmapError(f"clients is {clients!r}; a whole number is needed")
    own = None if dataset.owner is None else dataset.owner.numpy()
    if kind is None:
        kind = "incomplete" if own is None else "natural"
    kind = own_code.full_name(kind)
    chosen = checked(find_partition(kind).params, params, f"partition {kind}")
    if clients is None:
        known = chosen.count_clients(own)
        clients = dataset.defaults.clients if known is None else known
    names = tuple(dataset.classes)
    given = Labels(dataset.train_y.numpy(), len(names), clients, own, names)
    missing = np.setdiff1d(np.arange(given.classes), given.labels)
    if len(missing) and kind != "natural":
        raise FedmapError(
            f"dataset {dataset.name} has no training sample of class "
            f"{dataset.classes[missing[0]]!r}, so nobody could hold it"
        )
    owner = draw_owners(kind, given, chosen, generator(seed, "partition"))
    origin = {"data": dataset.name} | dataset.origin
    origin |= {
        "partition": kind,
        "partition_params": chosen.model_dump(),
        "clients": clients,
        "partition_seed": seed,
    }
    return Federation(dataset, owner, seed=seed, origin=origin)
