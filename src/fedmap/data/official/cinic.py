"""cinic-10 from the official folder tree: part/class/image. Training and test parts; the validation
part is not used."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedmap.data.cache import Arrays, cached
from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.files import images
from fedmap.data.locate import find
from fedmap.data.official.cifar import MEAN, STD
from fedmap.data.official.manifest import CINIC_CLASSES, OFFICIAL
from fedmap.data.registry import register_dataset
from fedmap.errors import FedmapError

PARTS = ("train", "test")
Files = dict[str, list[list[os.DirEntry[str]]]]  # part -> for each class its files


def find_files(folder: Path) -> Files:
    """All image files in the order of their names, class after class."""
    return {part: [_list(folder / part / name) for name in CINIC_CLASSES] for part in PARTS}


def _list(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry for entry in entries if entry.name.endswith(".png")),
                key=lambda entry: entry.name,
            )
    except OSError as error:
        raise FedmapError(
            f"{folder}: this folder of cinic-10 cannot be read ({error.strerror}); get the set "
            "again"
        ) from error


def decode(files: Files) -> Arrays:
    """PNG files to pixels; Pillow lets other threads work meanwhile."""
    arrays: Arrays = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for part, classes in files.items():
            x = np.empty((sum(map(len, classes)), 3, 32, 32), np.uint8)
            paths = [Path(entry.path) for entries in classes for entry in entries]
            for row, image in zip(x, pool.map(_image, paths), strict=True):
                row[:] = image
            arrays[f"{part}_x"] = x
            arrays[f"{part}_y"] = np.repeat(
                np.arange(len(classes)), [len(entries) for entries in classes]
            )
    return arrays


def _image(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    # the few gray ones spread over three channels
    return images.pixels(images.read(path, exactly=(32, 32)))


PAPER = Defaults(net="resnet20", epochs=40, lr=0.05)


@register_dataset(
    "cinic-10",
    "90,000 + 90,000 color images of cifar-10's classes, most of them from ImageNet",
    PAPER,
)
def cinic_10(data_dir: Path | None = None) -> Dataset:
    files = find_files(find(OFFICIAL["cinic-10"], data_dir))
    entries = [entry for classes in files.values() for entries in classes for entry in entries]
    arrays: dict[str, Any] = {
        part: torch.from_numpy(array)
        for part, array in cached("cinic-10", entries, lambda: decode(files)).items()
    }
    return Dataset(
        "cinic-10",
        **arrays,
        classes=CINIC_CLASSES,
        mean=MEAN,
        std=STD,
        augment=True,
        defaults=PAPER,
    )
