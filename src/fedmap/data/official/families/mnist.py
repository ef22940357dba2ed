"""Sets in the layout of MNIST: gray images of 28 x 28 pixels with labels 0..9 in four idx files."""

from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fedmap.data.cache import Arrays
from fedmap.data.files import idx
from fedmap.data.files.checksum import md5
from fedmap.data.official.base import OfficialSet, RemoteFile, Verification
from fedmap.errors import FedmapError

PARTS = {"train": "train", "test": "t10k"}
KINDS = {"images": 3, "labels": 1}  # dimensions of the arrays
IMAGES = {"train": 60_000, "test": 10_000}


class MnistLike(OfficialSet):
    """A set of four idx files, plain or gz, under either of their usual names."""

    mean, std = (0.5,), (0.5,)
    marks = tuple(f"train-images{mark}idx3-ubyte{end}" for mark, end in product("-.", ("", ".gz")))
    md5: dict[str, str]  # of the uncompressed data, because compressed files differ

    def files(self, folder: Path) -> list[Path]:
        """The four files, training part first."""
        return [find_file(folder, part, kind) for part in PARTS for kind in KINDS]

    def decode(self, folder: Path) -> Arrays:
        """The four arrays of the set, images scaled to 32 x 32."""
        (train_x, train_y), (test_x, test_y) = (read_part(folder, part) for part in PARTS)
        return {
            "train_x": scale(train_x).numpy(),
            "train_y": train_y.astype(np.int64),
            "test_x": scale(test_x).numpy(),
            "test_y": test_y.astype(np.int64),
        }

    def check(self, report: Verification) -> None:
        """Counts, and the sums of the uncompressed data."""
        for part, official in IMAGES.items():
            arrays = dict(zip(KINDS, read_part(report.folder, part), strict=True))
            report.compare_count(f"{part} images", len(arrays["labels"]), official)
            for kind, array in arrays.items():
                path = find_file(report.folder, part, kind)
                published = self.md5[f"{PARTS[part]}-{kind}-idx{array.ndim}-ubyte"]
                report.compare_md5(path, md5(idx.encode(array)), published)


def remote_idx_files(url: str, *files: tuple[str, str, int]) -> tuple[RemoteFile, ...]:
    """The compressed files below an address: the start of the name, MD5 sum and size of each."""
    return tuple(RemoteFile(f"{url}/{name}-ubyte.gz", md5, size) for name, md5, size in files)


def find_file(folder: Path, part: str, kind: str) -> Path:
    """The file of a part ("train", "test") and kind ("images", "labels")."""
    names = [
        f"{PARTS[part]}-{kind}{mark}idx{KINDS[kind]}-ubyte{end}"
        for mark, end in product("-.", ("", ".gz"))
    ]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FedmapError(f"{folder}: there is no {names[0]}, plain or .gz")


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
    """(n, h, w) to (n, 1, side, side), bilinear.

    The paper scales 28 to 32 pixels; the weights of that are exact in float32.
    """
    scaled = torch.empty((len(images), 1, side, side), dtype=torch.uint8)
    for start in range(0, len(images), 4096):
        x = torch.from_numpy(images[start : start + 4096]).unsqueeze(1).float()
        x = interpolate(x, (side, side), mode="bilinear", align_corners=False)
        scaled[start : start + 4096] = x.round_().to(torch.uint8)
    return scaled
