"""What server and sites say to each other. In a hello each site offers what must be common, the
server makes the terms of it, and every order carries them, so that each message explains itself."""

from dataclasses import replace
from importlib.metadata import version
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from fedmap import kernels
from fedmap.data.dataset import OWN, Dataset, Sums
from fedmap.data.files import images
from fedmap.data.own.arrays import VECTORS, natural, resize
from fedmap.errors import FedmapError
from fedmap.simulate.tasks import TaskName

TYPES = {"uint8": torch.uint8, "float32": torch.float32}
Kind = Literal["uint8", "float32"]
MOST_SITES = 1_000_000  # a site makes a list of them


class Record(BaseModel):
    """Base of what is said: checked once, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hello(Record):
    """The server asks who a site is. With `classes` a site names none of its own."""

    classes: tuple[str, ...] = ()
    version: str = version("fedmap")


class Offer(Record):
    """A site's answer: all that it reveals before it trains."""

    site: str
    classes: tuple[str, ...]  # none where the server gave the list
    shape: tuple[int, ...]
    kind: Kind
    features: tuple[str, ...] = ()  # names of the vectors' values, where the data has them
    mean: tuple[float, ...]
    std: tuple[float, ...]
    native: bool  # has it native kernels?
    sums: Sums | None = None  # of vectors that are to be scaled, over all training samples
    reason: str = ""  # why it does not take part; then the rest is empty


class Terms(Record):
    """What is common to all sites of a run."""

    classes: tuple[str, ...]
    shape: tuple[int, ...]
    kind: Kind
    features: tuple[str, ...] = ()
    mean: tuple[float, ...]
    std: tuple[float, ...]
    kernels: kernels.Kind


class Order(Record):
    """One task for one site."""

    run: str  # a random name, so that nothing of another run is taken for this one's
    start: int  # how many times the server has been started
    task: TaskName
    round: int
    number: int  # of the site
    sites: int = Field(ge=1, le=MOST_SITES)  # K
    counted: int  # the last round of this site that counts, 0 for none
    server_has_test: bool
    terms: Terms
    settings: dict[str, Any]


class Answer(Record):
    """What a site says of a task that it has done, or why it has not."""

    numbers: dict[str, float] = {}
    note: str = ""  # something that went wrong and did not stop it
    reason: str = ""


def listed(names: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


def offer(site: str, dataset: Dataset, hello: Hello, native: bool) -> Offer:
    """What a site with this data offers."""
    if hello.version != version("fedmap"):
        raise FedmapError(
            f"site {site} has fedmap {version('fedmap')}, the server {hello.version}; "
            "all need the same"
        )
    if hello.classes:
        numbers_of(dataset, hello.classes, f"site {site}")
    return Offer(
        site=site,
        classes=() if hello.classes else dataset.classes,
        shape=dataset.shape,
        kind="uint8" if dataset.train_x.dtype == torch.uint8 else "float32",
        features=dataset.features,
        mean=dataset.mean,
        std=dataset.std,
        native=native,
        sums=Sums.of(dataset.train_x) if dataset.scale == "standard" else None,
    )


def agree(
    offers: list[Offer], classes: tuple[str, ...] = (), choice: kernels.Choice = "auto"
) -> Terms:
    """The terms that all offers fit in: the union of the classes unless they are given, color if
    any site has color, one size, and native kernels if all have them."""
    first = offers[0]
    for other in offers[1:]:
        if (other.kind, len(other.shape)) != (first.kind, len(first.shape)) or (
            len(first.shape) == 1 and other.shape != first.shape
        ):
            raise FedmapError(
                f"site {other.site} has samples {other.kind} {other.shape} but site {first.site} "
                f"{first.kind} {first.shape}; all sites need the same"
            )
        check_features(other.features, first.features, f"site {other.site}")
    lists = {one.classes for one in offers}
    union = sorted({name for names in lists for name in names}, key=natural)
    return Terms(
        classes=classes or (first.classes if len(lists) == 1 else tuple(union)),
        kind=first.kind,
        kernels=_common_kernels(offers, choice),
        features=first.features,
        **_common_pixels(offers),
    )


def _common_kernels(offers: list[Offer], choice: kernels.Choice) -> kernels.Kind:
    """Native kernels and PyTorch's differ in bits, so all use the same."""
    without = [one.site for one in offers if not one.native]
    if choice == "native" and without:
        raise FedmapError(f"kernels = 'native', but {', '.join(without)} has none")
    return "torch" if choice == "torch" or without else "native"


def unfit(offer: Offer, terms: Terms) -> str:
    """Why a site cannot join, as far as its offer tells; nothing if it can."""
    gray = len(offer.shape) == 3 and offer.shape[0] in (1, terms.shape[0])
    same = offer.shape == terms.shape if len(terms.shape) == 1 else gray
    if offer.kind != terms.kind or len(offer.shape) != len(terms.shape) or not same:
        return (
            f"site {offer.site} has samples {offer.kind} {offer.shape}, the federation "
            f"{terms.kind} {terms.shape}"
        )
    if offer.features != terms.features:
        return f"site {offer.site} has other columns than the federation's: {terms.features}"
    if terms.kernels == "native" and not offer.native:
        return (
            f"site {offer.site} has no native kernels, which this run has been begun with; "
            'a run with kernels="torch" takes it'
        )
    return ""


def check_features(own: tuple[str, ...], common: tuple[str, ...], who: str) -> None:
    """Refuse columns that are not those of the others."""
    if own != common:
        more, less = ([n for n in a if n not in b] for a, b in ((own, common), (common, own)))
        both = (("has", more), ("lacks", less))
        told = [f"{what} {', '.join(some)}" for what, some in both if some]
        raise FedmapError(
            f"{who} {' and '.join(told) or 'has its columns in another order'}, unlike the others; "
            "all need the same columns, with the same values in those of text, in the same order"
        )


def _common_pixels(offers: list[Offer]) -> dict[str, Any]:
    """One shape, and one mean and standard deviation of each channel."""
    first = offers[0]
    if len(first.shape) == 1:
        mean, std = _common_scale(offers)
        return {"shape": first.shape, "mean": mean, "std": std}
    channels = {one.shape[0] for one in offers}
    if len(channels) > 1 and channels != {1, 3}:
        raise FedmapError(f"sites have images of {sorted(channels)} channels; all need the same")
    depth = max(channels)
    scaling = {(_for(depth, one.mean), _for(depth, one.std)) for one in offers}
    if len(scaling) > 1:
        raise FedmapError(f"sites scale pixels differently: {sorted(scaling)}; all need the same")
    sizes = {one.shape[1:] for one in offers}
    ((mean, std),) = scaling
    return {"shape": (depth, *(first.shape[1:] if len(sizes) == 1 else images.SIZE)), "mean": mean,
            "std": std}  # fmt: skip


def _common_scale(offers: list[Offer]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and standard deviation of each feature over all sites, where they want them."""
    sums = {one.site: one.sums for one in offers}
    if not any(sums.values()):
        return offers[0].mean, offers[0].std
    for site, own in sums.items():
        if own is None:
            raise FedmapError(
                f"site {site} has scale none, but others scale their features; all need the same"
            )
        if own.samples < 1 or {len(own.total), len(own.squares)} != {offers[0].shape[0]}:
            raise FedmapError(f"site {site} offers sums that do not fit its samples")
    return Sums.added([own for own in sums.values() if own]).statistics()


def _for(channels: int, values: tuple[float, ...]) -> tuple[float, ...]:
    """A gray image's value for each channel of a color one."""
    return values * channels if len(values) == 1 else values


def fit(dataset: Dataset, terms: Terms, who: str) -> Dataset:
    """The samples in the form of the terms, with the labels of the terms."""
    numbers = numbers_of(dataset, terms.classes, who)
    check_features(dataset.features, terms.features, who)
    return replace(
        dataset,
        train_x=_pixels(dataset.train_x, terms, who),
        train_y=numbers[dataset.train_y],
        test_x=_pixels(dataset.test_x, terms, who),
        test_y=numbers[dataset.test_y],
        classes=terms.classes,
        mean=terms.mean,
        std=terms.std,
    )


def numbers_of(dataset: Dataset, classes: tuple[str, ...], who: str) -> Tensor:
    """For each class of the dataset its number in the federation. One that has samples must have
    one."""
    for label in sorted({*dataset.train_y.tolist(), *dataset.test_y.tolist()}):
        if dataset.classes[label] not in classes:
            raise FedmapError(
                f"{who} has samples of class {dataset.classes[label]!r}, which is none of the "
                f"federation's classes: {', '.join(classes)}"
            )
    places = {name: number for number, name in enumerate(classes)}
    return torch.tensor([places.get(name, -1) for name in dataset.classes])


def _pixels(x: Tensor, terms: Terms, who: str) -> Tensor:
    shape, kind = tuple(x.shape[1:]), str(x.dtype).removeprefix("torch.")
    if kind != terms.kind or len(shape) != len(terms.shape):
        raise FedmapError(
            f"{who} has samples {kind} {shape}, the federation {terms.kind} {terms.shape}"
        )
    if shape == terms.shape:
        return x
    if len(shape) == 1 or (shape[0] != terms.shape[0] and shape[0] != 1):
        raise FedmapError(f"{who} has samples of {shape}, the federation of {terms.shape}")
    x = x.expand(-1, terms.shape[0], -1, -1)
    return x if shape[1:] == terms.shape[1:] else resize(x, (terms.shape[1], terms.shape[2]))


def common_dataset(terms: Terms, test: Dataset | None = None) -> Dataset:
    """A dataset without training samples: what is common, and the server's own test samples."""
    x = torch.empty((0, *terms.shape), dtype=TYPES[terms.kind])
    y = torch.empty(0, dtype=torch.int64)
    return Dataset(
        name="sites",
        train_x=x,
        train_y=y,
        test_x=x if test is None else test.test_x,
        test_y=y if test is None else test.test_y,
        classes=terms.classes,
        features=terms.features,
        mean=terms.mean,
        std=terms.std,
        defaults=OWN if len(terms.shape) == 3 else VECTORS,
    )
