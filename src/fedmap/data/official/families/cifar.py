"""What CIFAR-10, CIFAR-100 and CINIC-10 share: the paper's preparation of small color images, the
ten classes, and the file layouts of CIFAR (the binary version and the python version)."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmap.data.cache import Arrays
from fedmap.data.files import pickles
from fedmap.data.files.checksum import md5
from fedmap.data.official.base import OfficialSet, Verification
from fedmap.errors import FedmapError

TEN_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
URL = "https://www.cs.toronto.edu/~kriz"
CAP = 1 << 29  # bytes of one file; the largest official one has 154 MB
PIXELS = 3 * 32 * 32


class ColorImages(OfficialSet):
    """A set of color images of 32 x 32 pixels, prepared as in the paper."""

    mean, std = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
    augment = True


class Cifar(ColorImages):
    """A set in the file layout of CIFAR. Files are named without the suffix .bin, which those of
    the binary version have."""

    train_files: tuple[str, ...]
    test_file: str
    label_bytes: int  # before the pixels of an image; the last one is the label
    md5: dict[str, str]  # of the files of both versions
    unpacked_limit = 200_000_000

    def files(self, folder: Path) -> list[Path]:
        """All training files, then the test file; of the binary version if it is there."""
        suffix = ".bin" if (folder / f"{self.train_files[0]}.bin").is_file() else ""
        files = [folder / f"{stem}{suffix}" for stem in (*self.train_files, self.test_file)]
        for path in files:
            if not path.is_file():
                raise FedmapError(
                    f"{path}: this file of {self.name} is missing; get the set again with "
                    f"`fedmap data get {self.name}`"
                )
        return files

    def decode(self, folder: Path) -> Arrays:
        """The four arrays of the set, training files one after the other."""
        *train, (test_x, test_y) = [self.read_file(path) for path in self.files(folder)]
        train_x, train_y = (np.concatenate(parts) for parts in zip(*train, strict=True))
        return {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}

    def check(self, report: Verification) -> None:
        """Counts, and the sum of each file."""
        files = self.files(report.folder)
        *train, test = [len(self.read_file(path)[1]) for path in files]
        report.compare_count("train images", sum(train), 50_000)
        report.compare_count("test images", test, 10_000)
        for path in files:
            report.compare_md5(path, md5(path), self.md5[path.name])

    def read_file(self, path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Images (n, 3, 32, 32) and labels (n,) of one file."""
        binary = path.suffix == ".bin"
        x, y = _read_binary(path, self.label_bytes) if binary else _read_python(path)
        if len(y) and not 0 <= y.min() <= y.max() < len(self.classes):
            raise FedmapError(
                f"{path}: there are labels from {y.min()} to {y.max()}; "
                f"0..{len(self.classes) - 1} are allowed"
            )
        return x.reshape(-1, 3, 32, 32), y.astype(np.int64)


def _read_binary(
    path: Path, label_bytes: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Records of the label bytes and 3072 pixels, channel by channel."""
    size, record = path.stat().st_size, label_bytes + PIXELS
    if size > CAP or size % record:
        raise FedmapError(
            f"{path}: {size:,} bytes are not a whole number of records of {record} bytes; "
            "get the file again"
        )
    records = np.fromfile(path, np.uint8).reshape(-1, record)
    return records[:, label_bytes:], records[:, label_bytes - 1]


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
