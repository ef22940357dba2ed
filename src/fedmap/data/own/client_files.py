"""Folders with one file of arrays for each client: what the readers of .npz and .parquet share. A
file named test holds the shared test set."""

import difflib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from fedmap.data.dataset import Dataset
from fedmap.data.files.regular import require_regular
from fedmap.data.own.arrays import TEST, Pair, combine, natural
from fedmap.errors import FedmapError


def list_files(folder: Path, suffix: str) -> list[Path]:
    """The files of the clients and of the test set, in the natural order of their names."""
    require_there(folder)
    require_regular(folder)
    if not folder.is_dir():
        raise FedmapError(f"{folder}: a folder with one *{suffix} file for each client is needed")
    files = [
        path
        for path in folder.iterdir()
        if path.suffix.lower() == suffix and not path.name.startswith(".")
    ]
    files.sort(key=lambda path: natural(path.stem))
    if all(is_test(path) for path in files):
        raise FedmapError(f"{folder}: there is no client's *{suffix} file in this folder")
    for file in files:
        require_regular(file)
    for file, other in pairwise(sorted(files, key=lambda path: path.stem)):
        if file.stem == other.stem or (is_test(file) and is_test(other)):
            raise FedmapError(f"{folder}: {file.name} and {other.name} are of one name; keep one")
    return files


def require_there(path: Path) -> None:
    """Refuse a path where nothing is, with a name that is close to it."""
    if path.exists():
        return
    beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, beside, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    raise FedmapError(f"there is no file or folder {path}{meant}")


def is_test(path: Path) -> bool:
    """Whether a file holds the shared test set."""
    return path.stem.casefold() == TEST


def combine_files(
    folder: Path, pairs: dict[Path, Pair], kind: str, size: tuple[int, int] | None
) -> Dataset:
    """One Dataset from the samples and labels of each file."""
    test = next((str(path) for path in pairs if is_test(path)), None)
    # until here paths are the clients' names, so that error messages name the file
    by_path = {str(path): pair for path, pair in pairs.items()}
    data = combine(by_path, test, name=f"{kind}:{folder.absolute().name}", size=size)
    return replace(data, client_names=tuple(path.stem for path in pairs if not is_test(path)))
