"""One .npz file a client, with samples `x` and labels `y`; test.npz, if there is one, is the shared
test set."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedmap.data.dataset import Dataset
from fedmap.data.own.arrays import TEST, Pair, combine, natural
from fedmap.data.registry import register_format
from fedmap.errors import FedmapError

CAP = 1 << 31  # bytes that one file may unpack to


def client_files(folder: Path, suffix: str) -> list[Path]:
    """The files of a folder, one a client, in the natural order of their names."""
    if not folder.is_dir():
        raise FedmapError(
            f"{folder}: there is no such folder; it should hold one *{suffix} file for each client"
        )
    files = sorted(
        (path for path in folder.glob(f"*{suffix}") if not path.name.startswith(".")),
        key=lambda path: natural(path.stem),
    )
    if not any(path.stem != TEST for path in files):
        raise FedmapError(f"{folder}: there is no client's *{suffix} file in this folder")
    return files


def from_files(folder: Path, pairs: dict[Path, Pair], kind: str, size: tuple[int, int]) -> Dataset:
    """The Dataset of one pair of samples and labels a file. Clients have their files' paths as
    names until here, for the messages."""
    test = next((str(path) for path in pairs if path.stem == TEST), None)
    named = {str(path): pair for path, pair in pairs.items()}
    data = combine(named, test, name=f"{kind}:{folder.absolute().name}", classes=None, size=size)
    return replace(data, client_names=tuple(path.stem for path in pairs if path.stem != TEST))


@register_format("npz", "one .npz file a client, with samples x and labels y (images or vectors)")
def read_npz(path: Path, *, size: tuple[int, int] = (32, 32)) -> Dataset:
    """Read a folder of .npz files. Nothing that numpy would have to unpickle is read."""
    return from_files(path, {file: _read(file) for file in client_files(path, ".npz")}, "npz", size)


def _read(path: Path) -> Pair:
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > CAP:
            raise FedmapError(f"{path}: unpacks to {size:,} bytes; at most {CAP:,} are allowed")
        with np.load(path, allow_pickle=False) as content:
            missing = {"x", "y"} - set(content.files)
            if missing:
                raise FedmapError(
                    f"{path}: has no array {' and '.join(sorted(missing))}; there are: "
                    f"{', '.join(content.files) or 'none'}"
                )
            return content["x"], content["y"]
    except FedmapError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        raise FedmapError(
            f"{path}: not an .npz file of plain arrays ({type(error).__name__}: {error})"
        ) from error
