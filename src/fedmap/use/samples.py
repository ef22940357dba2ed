"""What a model is asked about: images of any size, or rows of .npz, .csv and .parquet files, as raw
samples of the model's shape."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from fedmap.data.files import images
from fedmap.data.own import csv_files, parquet
from fedmap.data.own.arrays import natural, resize
from fedmap.data.own.npz import read_arrays
from fedmap.data.own.parquet import LISTS
from fedmap.data.own.tables import NoNumbersError, Table
from fedmap.errors import FedmapError
from fedmap.use.model import BATCH, Notes

TABLES = (".npz", ".csv", ".parquet")  # several samples in one file
MANY = 4 * BATCH  # images that are decoded at a time


class Batch(NamedTuple):
    """Some samples, and what to call each of them."""

    names: list[str]
    samples: Tensor


def read_samples(paths: Iterable[Path], notes: Notes) -> Iterator[Batch]:
    """All samples in some files and folders, in their order. A file of the wrong kind, and a
    folder without one of the right kind, is refused."""
    files = [file for path in paths for file in _files(path, notes)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for table, some in groupby(files, lambda file: file.suffix.lower() in TABLES):
            group = list(some)
            if table:
                yield from (_rows(file, notes) for file in group)
                continue
            for first in range(0, len(group), MANY):
                part = group[first : first + MANY]
                decoded = list(pool.map(lambda file: _pixels(file, notes), part))
                yield Batch([str(file) for file in part], torch.from_numpy(np.stack(decoded)))


def _files(path: Path, notes: Notes) -> list[Path]:
    """A file as it is; of a folder, and of those in it, all files of a kind that can be read."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FedmapError(f"there is no file or folder {path}")
    kinds = (*images.SUFFIXES, *TABLES) if notes.pixels else TABLES
    found = [
        file
        for file in path.rglob("*")
        if file.suffix.lower() in kinds and not file.name.startswith(".") and file.is_file()
    ]
    if not found:
        raise FedmapError(f"{path}: there is no file in this folder that ends in {' '.join(kinds)}")
    return sorted(found, key=lambda file: [natural(part) for part in file.parts])


def _pixels(path: Path, notes: Notes) -> npt.NDArray[np.uint8]:
    """An image in the size and with the channels of the model."""
    if not notes.pixels or len(notes.shape) != 3 or notes.shape[0] not in (1, 3):
        raise FedmapError(
            f"{path}: the model takes values of shape {notes.shape}, not images; "
            f"files that end in {' '.join(TABLES)} are allowed"
        )
    channels, height, width = notes.shape
    found = images.pixels(images.read(path), (height, width), path)
    if len(found) > channels:
        return np.asarray(Image.fromarray(found.transpose(1, 2, 0)).convert("L"))[None]
    return np.repeat(found, channels // len(found), 0)


def _rows(path: Path, notes: Notes) -> Batch:
    """The samples of a table."""
    if path.suffix.lower() == ".npz":
        array: npt.NDArray[Any] = read_arrays(path, "x")[0]
        rows: Sequence[int] = range(1, len(np.atleast_1d(array)) + 1)
    else:
        table = _table(path, notes.features)
        array, rows = _numbers(table, notes.features), table.rows
    if array.dtype.kind not in "biuf":
        raise FedmapError(f"{path}: samples of type {array.dtype}; numbers are allowed")
    if array.ndim == 3 and len(notes.shape) == 3 and notes.shape[0] == 1:
        array = array[:, None]  # gray images without their channel
    elif array.ndim == 4 and array.shape[1:] != notes.shape and array.shape[3] in (1, 3):
        array = array.transpose(0, 3, 1, 2)  # channels last
    if notes.pixels and array.ndim == 4 and array.dtype == np.uint8:
        array = _as_trained(array, notes)
    if array.shape[1:] != notes.shape:
        raise FedmapError(
            f"{path}: samples of shape {array.shape[1:]}; the model takes {notes.shape}"
        )
    with np.errstate(over="ignore"):  # what is too large is named below
        samples = torch.from_numpy(np.ascontiguousarray(array, np.float32))
    finite = torch.isfinite(samples.flatten(1)).all(1)
    if not bool(finite.all()):
        row = rows[int(finite.int().argmin())]
        raise FedmapError(f"{path}: row {row} has a value that is not finite (NaN or too large)")
    return Batch([f"{path} row {row}" for row in rows], samples)


def _as_trained(pixels: npt.NDArray[np.uint8], notes: Notes) -> npt.NDArray[np.uint8]:
    """Images with the channels and in the size of the model; those that have other channels stay
    as they are."""
    channels, height, width = notes.shape
    if pixels.shape[1] not in (1, channels):
        return pixels
    wide = torch.from_numpy(np.repeat(pixels, channels // pixels.shape[1], 1))
    return (
        wide.numpy() if wide.shape[2:] == (height, width) else resize(wide, (height, width)).numpy()
    )


def _table(path: Path, features: Sequence[str]) -> Table:
    """A .csv or .parquet file with the columns that the model was trained on, if it knows them."""
    if path.suffix.lower() == ".parquet":
        # without names of features, what has a column of lists was trained on that alone
        table: Table = parquet.read_table(
            path, lambda _, names: [LISTS] if LISTS in names and not features else names
        )
    else:
        table = csv_files.read_table(path)
        if csv_files.as_numbers(table.names) is not None:
            raise FedmapError(
                f"{path}: its first line should name the columns, with samples below it"
            )
    missing = dict.fromkeys(f.partition("=")[0] for f in features if _column(f, table) is None)
    if missing:
        raise FedmapError(
            f"{path}: there is no column {', '.join(missing)}, which the model was trained on; "
            f"there are: {', '.join(table.names)}"
        )
    return table


def _numbers(table: Table, features: Sequence[str]) -> npt.NDArray[Any]:
    """The samples of a table. Where the model knows its features by name, columns are found by
    their names, and others may stand beside them; else all columns count, in their order."""
    if table.names == [LISTS] and not features:
        return _cells(LISTS, table)
    columns = (
        [_by_name(feature, features, table) for feature in features]
        if features
        else [_cells(name, table) for name in table.names]
    )
    return np.array(columns, np.float64).T


def _column(feature: str, table: Table) -> str | None:
    """The column of a feature: one of its name, or of a feature `color=red` the column `color`."""
    name = feature.partition("=")[0]
    return feature if feature in table.names else name if name in table.names else None


def _by_name(feature: str, features: Sequence[str], table: Table) -> npt.NDArray[np.float64]:
    """The values of one of the model's features."""
    if feature in table.names:
        return _cells(feature, table)
    column, _, value = feature.partition("=")
    known = [other.partition("=")[2] for other in features if other.startswith(f"{column}=")]
    cells = table.column(column)
    for row, cell in zip(table.rows, cells, strict=True):
        if cell not in known:
            raise FedmapError(
                f"{table.path}: row {row} has {cell!r} in column {column}, which no sample had in "
                f"training; there were: {', '.join(known)}"
            )
    return np.array([cell == value for cell in cells], np.float64)


def _cells(name: str, table: Table) -> npt.NDArray[Any]:
    """The numbers of a column."""
    try:
        return table.numbers(name)
    except NoNumbersError as wrong:
        raise FedmapError(
            f"{wrong.what}; only numbers, in the columns that the model was trained on, are allowed"
        ) from None
