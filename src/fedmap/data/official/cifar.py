"""cifar-10 and cifar-100, from the binary version or from the python version of the official files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmap.data.cache import Arrays, cached
from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.files import pickles
from fedmap.data.locate import find
from fedmap.data.official.manifest import CINIC_CLASSES, OFFICIAL
from fedmap.data.registry import register_dataset
from fedmap.errors import FedmapError

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # the paper's, for CINIC-10 too
CAP = 1 << 29  # bytes of one file; the largest official one has 154 MB
PIXELS = 3 * 32 * 32

_HUNDRED_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish forest
fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse
mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon
ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table
tank telephone television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""


@dataclass(frozen=True)
class Layout:
    """How one of the two sets is laid out in files."""

    classes: tuple[str, ...]
    train: tuple[str, ...]
    test: str
    label_bytes: int  # cifar-100 has the coarse label first, then the fine one

    @property
    def record(self) -> int:
        return self.label_bytes + PIXELS


CIFAR_10 = Layout(CINIC_CLASSES, tuple(f"data_batch_{i}" for i in range(1, 6)), "test_batch", 1)
CIFAR_100 = Layout(
    tuple(_HUNDRED_CLASSES.split()),
    ("train",),
    "test",
    2,
)
LAYOUTS = {"cifar-10": CIFAR_10, "cifar-100": CIFAR_100}


def find_files(name: str, folder: Path) -> list[Path]:
    """All training files, then the test file; the binary version is preferred, because it is plain."""
    layout = LAYOUTS[name]
    end = ".bin" if (folder / f"{layout.train[0]}.bin").is_file() else ""
    files = [folder / f"{stem}{end}" for stem in (*layout.train, layout.test)]
    for path in files:
        if not path.is_file():
            raise FedmapError(
                f"{path}: this file of {name} is missing; get the set again with `fedmap data get "
                f"{name}`"
            )
    return files


def read_file(path: Path, layout: Layout) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Images (n, 3, 32, 32) and (fine) labels (n,) of one file."""
    x, y = _read_binary(path, layout) if path.suffix == ".bin" else _read_python(path)
    if len(y) and not 0 <= y.min() <= y.max() < len(layout.classes):
        raise FedmapError(
            f"{path}: there are labels from {y.min()} to {y.max()}; 0..{len(layout.classes) - 1} "
            "are allowed"
        )
    return x.reshape(-1, 3, 32, 32), y.astype(np.int64)


def _read_binary(path: Path, layout: Layout) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Records of the label bytes and 3072 pixels, channel by channel."""
    size = path.stat().st_size
    if size > CAP or size % layout.record:
        raise FedmapError(
            f"{path}: {size:,} bytes are not a whole number of records of {layout.record} bytes; "
            "get the file again"
        )
    records = np.fromfile(path, np.uint8).reshape(-1, layout.record)
    return records[:, layout.label_bytes :], records[:, layout.label_bytes - 1]


def _read_python(path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """A pickled dictionary with `data` (n, 3072) and `fine_labels` or `labels`."""
    content = pickles.read(path)
    x, y = content.get("data"), content.get("fine_labels", content.get("labels"))
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 2 or x.shape[1] != PIXELS:
        raise FedmapError(f"{path}: `data` must be an array of bytes of shape (n, {PIXELS})")
    if not isinstance(y, list) or len(y) != len(x) or not all(type(label) is int for label in y):
        raise FedmapError(
            f"{path}: `labels` or `fine_labels` must be a list of {len(x)} whole numbers"
        )
    return x, np.array(y)


def _decode(files: list[Path], layout: Layout) -> Arrays:
    *train, (test_x, test_y) = [read_file(path, layout) for path in files]
    train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}


def _load(name: str, data_dir: Path | None, defaults: Defaults) -> Dataset:
    layout, files = LAYOUTS[name], find_files(name, find(OFFICIAL[name], data_dir))
    arrays: dict[str, Any] = {
        part: torch.from_numpy(array)
        for part, array in cached(name, files, lambda: _decode(files, layout)).items()
    }
    return Dataset(
        name, **arrays, classes=layout.classes, mean=MEAN, std=STD, augment=True, defaults=defaults
    )


TEN = Defaults(net="tfcnn", epochs=10)
HUNDRED = Defaults(net="vgg8-bn", epochs=20)


@register_dataset(
    "cifar-10", "50,000 + 10,000 color images of 10 kinds of animals and vehicles", TEN
)
def cifar_10(data_dir: Path | None = None) -> Dataset:
    return _load("cifar-10", data_dir, TEN)


@register_dataset("cifar-100", "50,000 + 10,000 color images of 100 kinds of things", HUNDRED)
def cifar_100(data_dir: Path | None = None) -> Dataset:
    return _load("cifar-100", data_dir, HUNDRED)
