"""Which client holds which samples. A partition draws one owner for every training sample, so each
sample is held exactly once. It knows labels only, nothing of images, methods or engines."""

import inspect
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from fedmap import own_code
from fedmap.data.own.csv_files import read_table
from fedmap.errors import FedmapError
from fedmap.registry import Registry, headline, nearest

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class PartitionParams(BaseModel):
    """Base of every partition's parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def count_clients(self, owner: Ints | None) -> int | None:
        """How many clients there are, where nobody has to choose that."""
        return None


class Labels(NamedTuple):
    """What a partition sees: the label of every training sample, how many classes and clients there
    are, the owner of each sample where the data has owners, and the classes' names."""

    labels: Ints
    classes: int
    clients: int
    owner: Ints | None = None
    names: tuple[str, ...] = ()


class Partition(NamedTuple):
    """A way to divide samples among clients: parameters, and a function that draws an owner for
    each sample."""

    params: type[PartitionParams]
    draw: Callable[[Labels, PartitionParams, np.random.Generator], Ints]

    @property
    def line(self) -> str:
        """What it is, for `fedmap partitions`."""
        return headline(self.params)


PARTITIONS: Registry[Partition] = Registry("partition")


def find_partition(name: str) -> Partition:
    """The partition of this name; `path/to/file.py:draw` is a function in a file, called with the
    `Labels` and a generator. What else it takes are its parameters."""
    if ":" not in name and not name.endswith(".py"):
        return PARTITIONS[name]
    draw = own_code.find("partition", name, callable, "function (labels, rng) -> owners")
    empty = inspect.Parameter.empty
    fields: dict[str, Any] = {
        one.name: (
            Any if one.annotation is empty else one.annotation,
            ... if one.default is empty else one.default,
        )
        for one in [*inspect.signature(draw).parameters.values()][2:]
    }

    def drawn(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
        try:
            return np.asarray(draw(given, rng, **params.model_dump()))
        except Exception as wrong:
            raise own_code.failed(f"partition {name} fails", wrong) from wrong

    return Partition(create_model("Params", __base__=PartitionParams, **fields), drawn)


class SizedParams(PartitionParams):
    """Parameters of a partition whose clients may differ in size."""

    size_sigma: float = Field(
        0.0, ge=0, le=3, description="log-normal spread of the clients' sizes; the paper has none"
    )

    def sizes(self, clients: int, rng: np.random.Generator) -> Floats:
        """The clients' sizes, in proportion to each other."""
        return np.exp(self.size_sigma * rng.standard_normal(clients))


class IncompleteParams(SizedParams):
    """Each client draws c from {2..C}, then c classes; a class's samples are divided among the
    clients that drew it."""


def draw_incomplete(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """The paper's main setting (Sect. 5.2.1): clients hold incomplete class sets and are nearly
    balanced over what they hold."""
    assert isinstance(params, IncompleteParams)
    how_many = rng.integers(min(2, given.classes), given.classes + 1, size=given.clients)
    rank = rng.random((given.clients, given.classes)).argsort(1).argsort(1)
    holds = rank < how_many[:, None]
    # A client with few classes gets a larger share of each, so that sizes stay nearly equal.
    shares = holds * (params.sizes(given.clients, rng) / how_many)[:, None]
    return divide(given, shares, rng)


PARTITIONS.add("incomplete")(Partition(IncompleteParams, draw_incomplete))


class DirichletParams(SizedParams):
    """Each client draws shares p of the classes from Dir(alpha); a class's samples are divided in
    proportion to them."""

    alpha: float = Field(
        0.5,
        ge=0.001,
        le=1000,
        description="small: few classes for each client; large: all clients alike",
    )


def draw_dirichlet(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """The paper's setting with complete, but skewed classes (Sect. 5.4)."""
    assert isinstance(params, DirichletParams)
    shares = rng.dirichlet(np.full(given.classes, params.alpha), given.clients)
    return divide(given, shares * params.sizes(given.clients, rng)[:, None], rng)


PARTITIONS.add("dirichlet")(Partition(DirichletParams, draw_dirichlet))


class ShardsParams(SizedParams):
    """Each client gets the same number of classes; every class goes to equally many clients, or
    to one more."""

    classes_per_client: int = Field(2, ge=1, description="classes of each client")


def draw_shards(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """Clients choose one after the other, each the classes that the fewest have chosen before."""
    assert isinstance(params, ShardsParams)
    each, least = params.classes_per_client, -(-given.classes // given.clients)
    if not least <= each <= given.classes:
        raise FedmapError(
            f"partition shards: classes_per_client is {each}; {least} to {given.classes} are "
            f"possible, so that {given.clients} clients hold all {given.classes} classes"
        )
    holds = np.zeros((given.clients, given.classes), bool)
    holders = np.zeros(given.classes)
    for client in range(given.clients):
        chosen = np.argsort(holders + rng.random(given.classes))[:each]
        holds[client, chosen] = True
        holders[chosen] += 1
    return divide(given, holds * params.sizes(given.clients, rng)[:, None], rng)


PARTITIONS.add("shards")(Partition(ShardsParams, draw_shards))


class VacantParams(PartitionParams):
    """The samples, sorted by class, are cut into equal shards; each client draws two of them, and
    most classes are vacant for it."""

    shards_per_client: int = Field(2, ge=1, description="shards of each client")


def draw_vacant(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """As McMahan et al. (2017) have it, and papers on vacant classes after them. A shard may span
    the end of a class, and a client may draw two shards of one class."""
    assert isinstance(params, VacantParams)
    each, samples = params.shards_per_client, len(given.labels)
    if samples < 2 * given.clients:
        raise too_many(given)
    if each * given.clients > samples:
        raise FedmapError(
            f"partition vacant: shards_per_client is {each}; at most {samples // given.clients} "
            f"are possible with {samples} training samples and {given.clients} clients"
        )
    shuffled = rng.permutation(samples)
    by_class = shuffled[np.argsort(given.labels[shuffled], kind="stable")]
    drawn = rng.permutation(np.repeat(np.arange(given.clients), each))
    owner = np.empty(samples, np.int64)
    for client, shard in zip(drawn, np.array_split(by_class, len(drawn)), strict=True):
        owner[shard] = client
    return owner


PARTITIONS.add("vacant")(Partition(VacantParams, draw_vacant))


class ClassesParams(PartitionParams):
    """A table says which classes each client has; a class's samples are divided evenly among the
    clients that have it."""

    file: str = Field(
        description="a .csv file with the columns client (whole numbers from 0) and class (names "
        "or numbers), one row for each class of a client"
    )
    checksum: int | None = Field(
        None, description="of the file; a run keeps it, and is repeated with the same table only"
    )

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: dict[str, Any]) -> dict[str, Any]:
        """With the whole path, and the checksum of what the file has now."""
        if not given.get("file"):
            raise FedmapError(
                "partition classes needs a table: --partition-param file=FILE.csv, with the "
                "columns client and class"
            )
        path = Path(os.path.expanduser(str(given["file"]))).absolute()
        read_table(path)  # refuses what cannot be read
        found = zlib.crc32(path.read_bytes())
        if given.get("checksum") not in (None, found):
            raise FedmapError(
                f"partition classes: {path} has changed (checksum {given['checksum']} then, "
                f"{found} now); bring the table back, or leave checksum out to take the new one"
            )
        return given | {"file": str(path), "checksum": found}

    def count_clients(self, owner: Ints | None) -> int | None:
        return len({client for _, client, _ in self.rows()})

    def rows(self) -> list[tuple[int, int, str]]:
        """Number, client and class of every row."""
        table = read_table(Path(self.file))
        columns = zip(table.rows, table.column("client"), table.column("class"), strict=True)
        return [(row, self._client(row, client), label) for row, client, label in columns]

    def _client(self, row: int, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise FedmapError(
                f"{self.file}: row {row} has the client {text!r}; whole numbers from 0 are allowed"
            )
        return int(text)


def draw_classes(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """What the table says, or a sentence why that cannot be."""
    assert isinstance(params, ClassesParams)
    rows = params.rows()
    _refuse_other_clients(given, {client for _, client, _ in rows}, params.file)
    holds = np.zeros((given.clients, given.classes), bool)
    for row, client, label in rows:
        holds[client, _class(given, label, f"{params.file}: row {row}")] = True
    _refuse_classes(given, ~np.any(holds, axis=0), params.file, "is nobody's: give it to a client")
    owner = divide(given, holds.astype(float), rng)
    found = np.zeros_like(holds)
    found[owner, given.labels] = True
    lost = np.any(found != holds, axis=0)
    _refuse_classes(given, lost, params.file, "has too few samples for the clients that share it")
    return owner


def _refuse_other_clients(given: Labels, found: set[int], file: str) -> None:
    for missing in sorted(set(range(len(found))) - found):
        raise FedmapError(
            f"{file}: client {missing} has no class; clients are numbered from 0 to the last, "
            "each with at least one class"
        )
    if given.clients != len(found):
        raise FedmapError(
            f"clients is {given.clients}, but {file} has {len(found)}; leave clients out"
        )


def _refuse_classes(given: Labels, which: NDArray[np.bool_], file: str, why: str) -> None:
    for number in np.flatnonzero(which):
        name = repr(given.names[number]) if given.names else str(number)
        raise FedmapError(f"{file}: class {name} {why}")


def _class(given: Labels, text: str, where: str) -> int:
    """The number of a class that is given by name, or by number where no class has that name."""
    if text in given.names:
        return given.names.index(text)
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) < given.classes:
        return int(text)
    known = f"; {nearest(text, given.names)}" if given.names else ""
    raise FedmapError(
        f"{where}: there is no class {text!r}{known} (or a number from 0 to {given.classes - 1})"
    )


PARTITIONS.add("classes")(Partition(ClassesParams, draw_classes))


class IIDParams(SizedParams):
    """Each client gets random samples, whatever their class."""


def draw_iid(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """Samples are divided as if all were of one class."""
    assert isinstance(params, IIDParams)
    alike = given._replace(labels=np.zeros_like(given.labels), classes=1)
    return divide(alike, params.sizes(given.clients, rng)[:, None], rng)


PARTITIONS.add("iid")(Partition(IIDParams, draw_iid))


class NaturalParams(PartitionParams):
    """Each sample stays with the owner that the data gives it, such as its writer; there are as
    many clients as owners."""

    def count_clients(self, owner: Ints | None) -> int | None:
        return None if owner is None else int(owner.max()) + 1


def draw_natural(given: Labels, params: PartitionParams, rng: np.random.Generator) -> Ints:
    """Nothing is drawn: the owners are those of the data."""
    if given.owner is None:
        others = sorted(name for name in PARTITIONS if name != "natural")
        raise FedmapError(
            f"partition natural: the samples come without owners; choose one of {', '.join(others)}"
        )
    owners = int(given.owner.max()) + 1
    if given.clients != owners:
        raise FedmapError(
            f"clients is {given.clients}, but the samples come with {owners} owners; "
            "leave clients out, or choose another partition"
        )
    return given.owner


PARTITIONS.add("natural")(Partition(NaturalParams, draw_natural))


def divide(given: Labels, wish: Floats, rng: np.random.Generator) -> Ints:
    """Owners such that each class's samples are divided in proportion to its column of `wish`
    (clients x classes)."""
    if len(given.labels) < 2 * given.clients:
        raise too_many(given)
    # A class that nobody wishes for goes to one client: together the clients hold every class.
    for unwished in np.flatnonzero(wish.sum(0) == 0):
        wish[rng.integers(given.clients), unwished] = 1
    sizes = np.bincount(given.labels, minlength=given.classes)
    by_class = np.split(np.argsort(given.labels, kind="stable"), sizes.cumsum()[:-1])
    columns = [proportional(wish[:, c], len(samples)) for c, samples in enumerate(by_class)]
    counts = np.stack(columns, axis=1)
    at_least_two_each(counts, wish, rng)
    owner = np.empty(len(given.labels), np.int64)
    for c, samples in enumerate(by_class):
        owner[rng.permutation(samples)] = np.repeat(np.arange(given.clients), counts[:, c])
    return owner


def too_many(given: Labels) -> FedmapError:
    """The sentence for more clients than the samples are enough for."""
    return FedmapError(
        f"{len(given.labels)} training samples cannot give {given.clients} clients two each "
        "(one to train on, one to test on); "
        f"at most {len(given.labels) // 2} clients are possible"
    )


def proportional(wish: Floats, total: int) -> Ints:
    """Whole numbers in proportion to `wish` that sum to `total` (largest remainders)."""
    exact = wish / wish.sum() * total
    counts: Ints = np.floor(exact).astype(np.int64)
    short = total - counts.sum()
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    return counts


def at_least_two_each(counts: Ints, wish: Floats, rng: np.random.Generator) -> None:
    """Move single samples, in place, from the largest clients to those with fewer than two: one
    to train on, one to test on.

    The moved sample is of a class that the receiver wished for, where a larger client has one.
    """
    sizes = counts.sum(1)
    # classes that no client with more than two samples has; this stays so
    used_up = np.zeros(counts.shape[1], bool)
    for client in np.flatnonzero(sizes < 2):
        while sizes[client] < 2:
            # A random one of the classes that are wished for and left, else of those that are left.
            c = np.argmax(~used_up * (1.0 + (wish[client] > 0)) + rng.random(len(used_up)))
            holders = sizes * (counts[:, c] > 0)
            giver = np.argmax(holders)
            if holders[giver] <= 2:
                used_up[c] = True
                continue
            counts[[giver, client], c] += (-1, 1)
            sizes[[giver, client]] += (-1, 1)


def draw_owners(
    name: str, given: Labels, params: PartitionParams, rng: np.random.Generator
) -> Ints:
    """Draw with the partition of this name: for each sample the client that holds it."""
    if given.clients < 1:
        raise FedmapError(f"clients is {given.clients}; at least 1 is needed")
    if given.owner is None and given.clients > len(given.labels):  # before memory is asked for them
        raise too_many(given)
    owner = find_partition(name).draw(given, params, rng)
    clients = np.arange(given.clients)
    if owner.shape != given.labels.shape or not np.array_equal(np.unique(owner), clients):
        raise FedmapError(
            f"partition {name} must give each of the {len(given.labels)} samples to one of the "
            f"clients 0 to {given.clients - 1}, and each client at least one sample"
        )
    return owner.astype(np.int64)
