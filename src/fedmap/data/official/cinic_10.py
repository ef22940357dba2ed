"""cinic-10, from the official folder tree part/class/image. The validation part is not used."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedmap.data.cache import Arrays
from fedmap.data.dataset import Defaults
from fedmap.data.files import images
from fedmap.data.official.base import RemoteFile, Verification, register_official
from fedmap.data.official.families.cifar import TEN_CLASSES, ColorImages
from fedmap.errors import FedmapError

PARTS = {"train": 90_000, "test": 90_000}
URL = "https://datashare.ed.ac.uk/server/api/core/bitstreams"


@register_official
class Cinic10(ColorImages):
    """CIFAR-10's classes, most images from ImageNet."""

    name = "cinic-10"
    line = "90,000 + 90,000 color images of cifar-10's classes, most of them from ImageNet"
    defaults = Defaults(net="resnet20", epochs=40, lr=0.05)
    classes = TEN_CLASSES
    folders = ("cinic-10", "CINIC-10", "cinic10", "CINIC10")
    marks = ("train/airplane",)
    remote_files = (
        RemoteFile(
            f"{URL}/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
            "6ee4d0c996905fe93221de577967a372",
            687_544_992,
            "CINIC-10.tar.gz",
        ),
    )
    unpacked_limit = 2_000_000_000

    def files(self, folder: Path) -> list[os.DirEntry[str]]:
        """All images of both parts, class after class."""
        return [file for part in PARTS for files in by_class(folder, part) for file in files]

    def decode(self, folder: Path) -> Arrays:
        """The four arrays of the set, images in the order of `files`."""
        arrays: Arrays = {}
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes without the global lock
            for part in PARTS:
                classes = by_class(folder, part)
                sizes = [len(files) for files in classes]
                paths = [Path(file.path) for files in classes for file in files]
                x = np.empty((len(paths), 3, 32, 32), np.uint8)
                for row, image in zip(x, pool.map(read_image, paths), strict=True):
                    row[:] = image  # a gray one fills all three channels
                arrays[f"{part}_x"] = x
                arrays[f"{part}_y"] = np.repeat(np.arange(len(sizes)), sizes)
        return arrays

    def check(self, report: Verification) -> None:
        """CINIC-10 publishes no sums of single files: every image is decoded and counted."""
        arrays = self.decode(report.folder)
        for part, official in PARTS.items():
            sizes = np.bincount(arrays[f"{part}_y"], minlength=len(self.classes))
            report.compare_count(f"{part} images", int(sizes.sum()), official)
            report.facts.append(f"{sizes.min():,} to {sizes.max():,} {part} images for each class")


def by_class(folder: Path, part: str) -> list[list[os.DirEntry[str]]]:
    """For each class the image files of a part, in the order of their names."""
    return [_images(folder / part / name) for name in TEN_CLASSES]


def _images(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if entry.name.endswith(".png")]
    except OSError as error:
        raise FedmapError(
            f"{folder}: this folder of cinic-10 cannot be read ({error.strerror}); "
            "get the set again"
        ) from error
    return sorted(found, key=lambda entry: entry.name)


def read_image(path: Path) -> npt.NDArray[np.uint8]:
    """The pixels (channels, 32, 32) of one image, gray or in color."""
    return images.pixels(images.read(path, exactly=(32, 32)))
