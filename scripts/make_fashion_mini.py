"""Make the embedded part of Fashion-MNIST: the first 1,000 training and 200 test images of each
class, in official order."""

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fedmap.data.files import idx
from fedmap.data.official.families import mnist

PER_CLASS = {"train": 1000, "test": 200}


def chosen(labels: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.intp]:
    """Which samples are kept, in official order."""
    return np.sort(np.concatenate([np.flatnonzero(labels == c)[:count] for c in range(10)]))


def main() -> None:
    """Read the official files, write the chosen part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "official", type=Path, help="folder with the four official idx files, plain or gz"
    )
    parser.add_argument(
        "destination",
        type=Path,
        help="folder to write to, src/fedmap/data/official/fashion_mini in this repository",
    )
    arguments = parser.parse_args()
    arguments.destination.mkdir(parents=True, exist_ok=True)
    for part, count in PER_CLASS.items():
        x, y = mnist.read_part(arguments.official, part)
        keep = chosen(y, count)
        for kind, array in (("images", x[keep]), ("labels", y[keep])):
            path = arguments.destination / f"{mnist.PARTS[part]}-{kind}-idx{array.ndim}-ubyte.gz"
            idx.write_gz(path, array)
            print(f"{path}: {len(array)} {kind}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
