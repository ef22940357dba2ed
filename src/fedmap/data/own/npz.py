"""One .npz file for each client, with samples `x` and labels `y`; test.npz, if there is one, is
the shared test set."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmap.data.dataset import Dataset
from fedmap.data.own.arrays import Pair
from fedmap.data.own.client_files import combine_files, list_files
from fedmap.data.registry import register_format, spoken
from fedmap.errors import FedmapError

CAP = 1 << 31  # bytes that one file may unpack to


@register_format(
    "npz", "one .npz file for each client, with samples x and labels y (images or vectors)"
)
def read_npz(
    path: Path, *, size: tuple[int, int] | None = None, label_column: str = "y"
) -> Dataset:
    """Read a folder of .npz files. Nothing that numpy would have to unpickle is read."""
    pairs: dict[Path, Pair] = {}
    for file in list_files(path, ".npz"):
        more = f"; {spoken('label_column')} chooses that of the labels"
        x, y = read_arrays(file, "x", label_column, more=more)
        pairs[file] = x, y
    return combine_files(path, pairs, "npz", size)


def read_arrays(path: Path, *names: str, more: str = "") -> list[npt.NDArray[Any]]:
    """Some arrays of one file, each of which must be there; `more` is said where one is not."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > CAP:
            raise FedmapError(f"{path}: unpacks to {size:,} bytes; at most {CAP:,} are allowed")
        with np.load(path, allow_pickle=False) as content:
            missing = set(names) - set(content.files)
            if missing:
                raise FedmapError(
                    f"{path}: has no array {' and '.join(sorted(missing))}; "
                    f"there are: {', '.join(content.files) or 'none'}{more}"
                )
            return [content[name] for name in names]
    except FedmapError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise FedmapError(
            f"{path}: not an .npz file of plain arrays ({type(error).__name__}: {error})"
        ) from error
