"""The MNIST family: mnist and fashion-mnist from official idx files, and the part of Fashion-MNIST
that comes with fedmap."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fedmap.data.cache import Arrays, cached
from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.files import idx
from fedmap.data.locate import find
from fedmap.data.official.manifest import OFFICIAL
from fedmap.data.registry import register_dataset
from fedmap.errors import FedmapError

FASHION = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
DIGITS = tuple("0123456789")
PARTS = {"train": "train", "test": "t10k"}


def find_file(folder: Path, part: str, kind: str) -> Path:
    """The file of a part ("train", "test") and kind ("images", "labels") below either of its two
    usual names, plain or gz."""
    dims = {"images": 3, "labels": 1}[kind]
    names = [
        f"{PARTS[part]}-{kind}{mark}idx{dims}-ubyte{end}" for mark in "-." for end in ("", ".gz")
    ]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FedmapError(f"{folder}: there is no {names[0]}, plain or .gz")


def find_files(folder: Path) -> list[Path]:
    """The four files of the set."""
    return [find_file(folder, part, kind) for part in PARTS for kind in ("images", "labels")]


def read_part(folder: Path, part: str) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Images (n, 28, 28) and labels (n,) as they are in the files."""
    path = find_file(folder, part, "images")
    x, y = idx.read(path, 3), idx.read(find_file(folder, part, "labels"), 1)
    if len(x) != len(y):
        raise FedmapError(f"{path}: {len(x)} images but {len(y)} labels beside it")
    if x.shape[1:] != (28, 28):
        raise FedmapError(
            f"{path}: images of {x.shape[1]} x {x.shape[2]} pixels; they must have 28 x 28"
        )
    if len(y) and y.max() > 9:
        raise FedmapError(f"{path}: a label beside it is {y.max()}; labels are 0..9")
    return x, y


def scale(images: npt.NDArray[np.uint8], side: int = 32) -> Tensor:
    """(n, h, w) -> (n, 1, side, side), bilinear: the paper scales 28 to 32 pixels, where the
    weights are exact in float32."""
    out = torch.empty((len(images), 1, side, side), dtype=torch.uint8)
    for start in range(0, len(images), 4096):
        x = torch.from_numpy(images[start : start + 4096]).unsqueeze(1).float()
        out[start : start + 4096] = (
            interpolate(x, (side, side), mode="bilinear", align_corners=False)
            .round_()
            .to(torch.uint8)
        )
    return out


def decode(folder: Path) -> Arrays:
    (train_x, train_y), (test_x, test_y) = (read_part(folder, part) for part in PARTS)
    return {
        "train_x": scale(train_x).numpy(),
        "train_y": train_y.astype(np.int64),
        "test_x": scale(test_x).numpy(),
        "test_y": test_y.astype(np.int64),
    }


def _make(name: str, arrays: Arrays, classes: tuple[str, ...], defaults: Defaults) -> Dataset:
    parts: dict[str, Any] = {part: torch.from_numpy(array) for part, array in arrays.items()}
    return Dataset(name, **parts, classes=classes, mean=(0.5,), std=(0.5,), defaults=defaults)


def _load(name: str, data_dir: Path | None, classes: tuple[str, ...]) -> Dataset:
    folder = find(OFFICIAL[name], data_dir)
    return _make(name, cached(name, find_files(folder), lambda: decode(folder)), classes, PAPER)


PAPER = Defaults()
MINI = Defaults(clients=20)


@register_dataset(
    "fashion-mini",
    "10,000 + 2,000 images of Fashion-MNIST, inside fedmap: nothing to download",
    MINI,
)
def fashion_mini(_: Path | None = None) -> Dataset:
    return _make("fashion-mini", decode(Path(__file__).with_name("fashion_mini")), FASHION, MINI)


@register_dataset("fashion-mnist", "60,000 + 10,000 gray images of 10 kinds of clothes", PAPER)
def fashion_mnist(data_dir: Path | None = None) -> Dataset:
    return _load("fashion-mnist", data_dir, FASHION)


@register_dataset("mnist", "60,000 + 10,000 gray images of handwritten digits", PAPER)
def mnist(data_dir: Path | None = None) -> Dataset:
    return _load("mnist", data_dir, DIGITS)
