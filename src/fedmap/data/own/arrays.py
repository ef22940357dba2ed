"""The user's own arrays, one pair of samples and labels for each client, to one Dataset. Other
readers use it for the arrays that they read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from fedmap.data.dataset import OWN, Dataset, Scale
from fedmap.data.files import images
from fedmap.data.own.columns import guessed_pair, is_table
from fedmap.errors import FedmapError

Pair = tuple[npt.ArrayLike, npt.ArrayLike]
Items = Any  # numbered pairs of a sample and a label, as `torch.utils.data.Dataset` has them
VECTORS = replace(OWN, net="mlp")
POOLED_CLIENTS = 10  # among whom samples that nobody owns are divided where nothing else is said
TEST = "test"  # a folder or file of this name holds the shared test set, not a client


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key with numbers by value: client2 comes before client10."""
    parts = [part.lstrip("0") if part.isdecimal() else part for part in re.split(r"(\d+)", name)]
    return [(i % 2, len(part) if i % 2 else 0, part) for i, part in enumerate(parts)], name


def from_clients(
    clients: Mapping[str, Pair | Items],
    test: Pair | Items | None = None,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    size: tuple[int, int] | None = None,
    scale: Scale = "standard",
) -> Dataset:
    """One Dataset from each client's samples and labels; clients keep their names and order.

    A client is a pair of arrays, or a `torch.utils.data.Dataset` (or anything else with a length
    and numbered items) whose items are pairs of a sample and a label, or a `datasets` object of
    Hugging Face.

    Samples: images (n, h, w), (n, channels, h, w) or (n, h, w, channels), uint8 or float, or
    vectors (n, d). Gray and color mixed become color; images are scaled to `size` where it is
    given, and to 32 by 32 where they differ. Labels: any whole numbers or text; they become 0..C-1
    in sorted order and their names are kept; with `classes` they are indices of these names, or the
    names themselves.

    Vectors stay as they are until a federation scales every feature to mean 0 and deviation 1 over
    its clients' training samples; with `scale="none"` it does not.
    """
    if TEST in clients and test is not None:
        raise FedmapError(
            f"dataset {name}: {TEST!r} is the name of the test set and cannot be a client's"
        )
    given = dict(clients) if test is None else {**clients, TEST: test}
    pairs = {client: as_pair(one, client, size) for client, one in given.items()}
    test_name = None if test is None else TEST
    dataset = combine(pairs, test_name, name=name, classes=classes, size=size)
    return replace(dataset, scale=scale) if dataset.train_x.dim() == 2 else dataset


def as_pair(given: Pair | Items, client: str, size: tuple[int, int] | None) -> Pair:
    """Samples and labels as arrays, also of what gives them one by one."""
    if isinstance(given, tuple | list):
        return given[0], given[1]
    if is_table(given):
        return guessed_pair(given, size, client)
    try:
        items = [(item[0], item[1]) for item in (given[number] for number in range(len(given)))]
    except (TypeError, IndexError, KeyError) as error:
        raise FedmapError(
            f"{client}: a {type(given).__name__} is neither a pair of arrays nor has it numbered "
            f"items (sample, label) ({error})"
        ) from error
    samples = [sample for sample, _ in items]
    labels = _named_labels(given, [label for _, label in items])
    if samples and all(isinstance(sample, Image.Image) for sample in samples):
        return images.stack(samples, size, client), labels
    shapes = {np.shape(sample) for sample in samples}
    if len(shapes) > 1:
        raise FedmapError(
            f"{client}: samples of {len(shapes)} different shapes, such as "
            f"{' and '.join(map(str, sorted(shapes)[:2]))}; all must have the same"
        )
    return np.array([np.asarray(sample) for sample in samples]), labels


def _named_labels(given: Items, labels: list[Any]) -> npt.NDArray[Any]:
    """Labels as names where the data has a list of its own: the same number is another class at
    another client whose list differs."""
    numbers = [label.item() if isinstance(label, Tensor) else label for label in labels]
    source = given if hasattr(given, "classes") else getattr(given, "dataset", None)  # a subset
    names = getattr(source, "classes", None)
    return np.array([str(names[number]) for number in numbers] if names else numbers)


def combine(
    pairs: Mapping[str, Pair],
    test: str | None,
    *,
    name: str,
    size: tuple[int, int] | None,
    classes: Sequence[str] | None = None,
) -> Dataset:
    """One Dataset from pairs of samples and labels, one for each client; the pair named `test`, if
    any, is the test set."""
    clients = [client for client in pairs if client != test]
    if not clients:
        raise FedmapError(f"dataset {name}: there is no client")
    samples = _alike({client: _samples(x, client) for client, (x, _) in pairs.items()}, size)
    checked = {client: _labels(y, client, len(samples[client])) for client, (_, y) in pairs.items()}
    labels, names = _numbered(checked, classes)
    train_x = torch.cat([samples[client] for client in clients])
    train_y = torch.cat([labels[client] for client in clients])
    channels = train_x.shape[1] if train_x.dtype == torch.uint8 else 0
    return Dataset(
        name=name,
        train_x=train_x,
        train_y=train_y,
        test_x=train_x[:0] if test is None else samples[test],
        test_y=train_y[:0] if test is None else labels[test],
        classes=names,
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
        scale="standard" if train_x.dim() == 2 else "none",
        owner=torch.repeat_interleave(torch.tensor([len(labels[client]) for client in clients])),
        defaults=replace(OWN if train_x.dim() == 4 else VECTORS, clients=len(clients)),
        client_names=tuple(clients),
    )


def grouped(pair: Pair, owners: Any) -> dict[str, Pair]:
    """One pair for each client; clients in the natural order of their names."""
    samples, labels = (np.asarray(part) for part in pair)
    names = np.array([str(owner) for owner in owners])
    if not len(samples) == len(labels) == len(names):
        raise FedmapError(
            f"columns differ in length: {len(samples)} samples, {len(labels)} labels, "
            f"{len(names)} clients"
        )
    return {
        client: (samples[names == client], labels[names == client])
        for client in sorted(set(names.tolist()), key=natural)
    }


def pooled(where: str, pair: Pair, *, name: str, size: tuple[int, int] | None) -> Dataset:
    """One Dataset of samples that nobody owns yet; `where` names them in error messages."""
    dataset = combine({where: pair}, None, name=name, size=size)
    defaults = replace(dataset.defaults, clients=POOLED_CLIENTS)
    return replace(dataset, owner=None, client_names=(), defaults=defaults)


def _samples(x: npt.ArrayLike, client: str) -> Tensor:
    """uint8 images (n, channels, h, w), or float32 images or vectors (n, d)."""
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise FedmapError(f"{client}: the samples differ in shape ({error})") from error
    if array.ndim and not len(array):
        raise FedmapError(f"{client}: there is no sample")
    if array.dtype.kind not in "biuf":
        raise FedmapError(f"{client}: samples of type {array.dtype}; numbers are allowed")
    if array.ndim not in (2, 3, 4) or 0 in array.shape[1:]:
        raise FedmapError(
            f"{client}: samples of shape {array.shape}; "
            "images (n, channels, h, w) or (n, h, w), or vectors (n, d), are allowed"
        )
    if array.dtype != np.uint8 or array.ndim == 2:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        finite = np.isfinite(array).reshape(len(array), -1).all(1)
        if not finite.all():
            raise FedmapError(
                f"{client}: sample {int(finite.argmin())} has a value that is not finite "
                "(NaN or too large)"
            )
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3) and array.shape[1] not in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _alike(samples: dict[str, Tensor], size: tuple[int, int] | None) -> dict[str, Tensor]:
    """Images with the same channels and size for all clients. Samples of different kinds are
    refused."""
    first, reference = next(iter(samples.items()))
    for client, x in samples.items():
        if _kind(x) != _kind(reference):
            raise FedmapError(
                f"{client}: samples are {_kind(x)} but those of {first} are {_kind(reference)}; "
                "all clients need the same features"
            )
    if reference.dim() == 2:
        return samples
    channels = {x.shape[1] for x in samples.values()}
    if channels == {1, 3}:
        samples = {client: x.expand(-1, 3, -1, -1) for client, x in samples.items()}
    elif len(channels) > 1:
        raise FedmapError(
            f"images have {sorted(channels)} channels; "
            "all must have the same number, or be gray and color"
        )
    if size is None and len({x.shape[2:] for x in samples.values()}) == 1:
        return samples
    wanted = size or images.SIZE
    return {
        client: x if tuple(x.shape[2:]) == wanted else resize(x, wanted)
        for client, x in samples.items()
    }


def _kind(x: Tensor) -> str:
    if x.dim() == 2:
        return f"vectors of {x.shape[1]} values"
    return f"{str(x.dtype).removeprefix('torch.')} images"


def resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Images in another size."""
    scaled = interpolate(x.float(), size, mode="bilinear", align_corners=False, antialias=True)
    return scaled.round_().clamp_(0, 255).to(torch.uint8) if x.dtype == torch.uint8 else scaled


def _labels(y: npt.ArrayLike, client: str, n: int) -> npt.NDArray[Any]:
    """Whole numbers (int64) or text (str), one for each sample."""
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n,):
        raise FedmapError(
            f"{client}: {n} samples but labels of shape {array.shape}; "
            "one label for each sample is needed"
        )
    if array.dtype.kind == "f" and _whole(array):
        array = array.astype(np.int64)
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.tolist()):
        array = array.astype(str)
    if array.dtype.kind in "bi" or (array.dtype.kind == "u" and array.max() < 2**63):
        return array.astype(np.int64)
    if array.dtype.kind != "U":
        raise FedmapError(
            f"{client}: labels of type {array.dtype}, such as {array.tolist()[0]!r}; "
            "whole numbers or text are allowed, none missing"
        )
    return array


def _whole(numbers: npt.NDArray[Any]) -> bool:
    """Are these floats whole numbers that a float holds exactly?"""
    return bool((np.abs(numbers) < 2**53).all() and (numbers == np.rint(numbers)).all())


def _numbered(
    labels: dict[str, npt.NDArray[Any]], classes: Sequence[str] | None
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Labels as 0..C-1, and the names of the classes."""
    text = {client for client, y in labels.items() if y.dtype.kind == "U"}
    if text and len(text) < len(labels):
        number = next(client for client in labels if client not in text)
        raise FedmapError(
            f"{number}: labels are numbers but those of {min(text)} are text; "
            "all clients need the same kind"
        )
    if classes is None:
        found = {label for y in labels.values() for label in np.unique(y).tolist()}
        values: Sequence[Any] = sorted(found, key=natural if text else None)
    else:
        values = classes if text else range(len(classes))
    number_of = {value: number for number, value in enumerate(values)}
    numbered = {}
    for client, y in labels.items():
        unique, inverse = np.unique(y, return_inverse=True)
        unknown = [label for label in unique.tolist() if label not in number_of]
        if unknown:
            allowed = ", ".join(map(str, values)) if text else f"0..{len(values) - 1}"
            raise FedmapError(
                f"{client}: label {unknown[0]!r} is none of the classes; {allowed} are allowed"
            )
        numbers = torch.tensor([number_of[label] for label in unique.tolist()])
        numbered[client] = numbers[torch.from_numpy(inverse)]
    return numbered, tuple(classes if classes is not None else map(str, values))
