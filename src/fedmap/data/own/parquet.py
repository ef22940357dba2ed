"""Tables as .parquet files: one file for each client (test.parquet is the shared test set), or one
file of all rows, in which a column may name the client."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedmap.data.dataset import Dataset
from fedmap.data.files.regular import require_regular
from fedmap.data.own.tables import (
    Chosen,
    NoNumbersError,
    combine_tables,
    feature_columns,
    samples,
    table_files,
)
from fedmap.data.registry import register_format, spoken
from fedmap.errors import FedmapError

CAP = 1 << 31  # bytes that one file may unpack to
LISTS = "x"  # a column of this name has all features of a row


class Table(NamedTuple):
    """The columns of one file that are needed."""

    path: Path
    columns: Any  # pyarrow.Table

    @property
    def names(self) -> list[str]:
        """The columns in their order."""
        return list(self.columns.column_names)

    @property
    def rows(self) -> range:
        """The number of each row, from 1."""
        return range(1, len(self.columns) + 1)

    def values(self, name: str) -> list[Any]:
        """A column with a value in every row."""
        if self.columns.column(name).null_count:
            raise missing(self.path, name)
        with readable(self.path):
            return list(self.columns.column(name).to_pylist())

    def column(self, name: str) -> tuple[str, ...]:
        """The same as text."""
        return tuple(map(str, self.values(name)))

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers, which may be lists in column x."""
        with readable(self.path):
            return np.asarray(_numbers(self.columns.column(name).combine_chunks(), name, self.path))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A damaged file can raise anything; it becomes one sentence."""
    try:
        yield
    except FedmapError:
        raise
    except Exception as error:
        raise FedmapError(
            f"{path}: not a parquet file that can be read ({type(error).__name__}: {error})"
        ) from error


def missing(path: Path, name: str) -> FedmapError:
    """The sentence for a column with gaps."""
    return FedmapError(f"{path}: column {name} has missing values; fill them or drop the rows")


@register_format(
    "parquet",
    "one .parquet file for each client, or one file for all: a column of labels, features x or all "
    "other columns (needs fedmap[parquet])",
)
def read_parquet(
    path: Path,
    *,
    size: tuple[int, int] | None = None,
    label_column: str = "y",
    client_column: str | None = None,
    categories: Sequence[str] = (),
) -> Dataset:
    """Read a folder of .parquet files, or one file, whose rows belong to the clients that
    `client_column` names, or to nobody yet.

    Features are the lists in column `x`, or, without it, all other columns: numbers, or for a
    column of `categories` one feature for each of its values, which is 1 where the row has it.
    """
    chosen = Chosen(label_column, client_column, categories)
    needed = partial(_needed, chosen=chosen)
    tables = [read_table(file, needed) for file in table_files(path, ".parquet", chosen)]
    names = feature_columns(tables, chosen)
    features: tuple[str, ...] = ()
    if names == [LISTS]:
        x = [table.numbers(LISTS) for table in tables]
    else:
        features, x = samples(tables, names, categories)
    pairs = [(own, np.array(t.values(label_column))) for own, t in zip(x, tables, strict=True)]
    dataset = combine_tables(path, "parquet", tables, pairs, chosen, size)
    return replace(dataset, features=features)


def read_table(path: Path, needed: Callable[[Path, list[str]], list[str]]) -> Table:
    """Those columns of a file that are needed, which is asked with all their names."""
    require_regular(path)
    try:
        reader = import_module("pyarrow.parquet")
    except ImportError as error:
        raise FedmapError(
            "parquet files need pyarrow; install it with `pip install 'fedmap[parquet]'`"
        ) from error
    with readable(path), reader.ParquetFile(path) as file:
        unpacked = _unpacked_bytes(file)
        if unpacked > CAP:
            raise FedmapError(f"{path}: unpacks to {unpacked:,} bytes; at most {CAP:,} are allowed")
        names = list(file.schema_arrow.names)
        if len(set(names)) < len(names):
            raise FedmapError(f"{path}: columns {', '.join(names)}; each needs a different name")
        names = needed(path, names)
        if not file.metadata.num_rows:
            raise FedmapError(f"{path}: there is no sample")
        return Table(path, file.read(columns=names, use_threads=False))


def _needed(path: Path, names: list[str], chosen: Chosen) -> list[str]:
    """All columns, or beside a column x only those that are no features."""
    chosen.require(path, names)
    if LISTS not in names or LISTS in chosen[:2]:
        return names
    if chosen.categories:
        raise FedmapError(
            f"{path}: column {LISTS} has all features, so {spoken('categories')} can name none"
        )
    return [name for name in names if name in (LISTS, *chosen[:2])]


def _unpacked_bytes(file: Any) -> int:
    """The size in memory: eight bytes for each value, because a run of equal values takes almost
    no bytes in the file."""
    metadata = file.metadata
    least = 8 * metadata.num_rows * metadata.num_columns
    if least > CAP:
        return int(least)
    # A damaged column raises here; below, pyarrow would end the process.
    file.scan_contents(None, 1 << 16)
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    values = sum(group.column(i).num_values for group in groups for i in range(group.num_columns))
    return int(max(8 * values, sum(group.total_byte_size for group in groups)))


def _numbers(array: Any, name: str, path: Path) -> Any:
    """A column of numbers; in column x also lists of numbers that all have the same length."""
    compute, types = import_module("pyarrow.compute"), import_module("pyarrow.types")
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list) if name == LISTS else ()
    numbers = (types.is_integer, types.is_floating, types.is_boolean)
    shape = [len(array)]
    while not array.null_count and any(is_list(array.type) for is_list in lists):
        lengths = np.unique(compute.list_value_length(array).to_numpy(zero_copy_only=False))
        if len(lengths) != 1:
            raise FedmapError(
                f"{path}: the lists in column {name} have {len(lengths)} different lengths; "
                "all must be equal"
            )
        shape.append(int(lengths[0]))
        array = array.flatten()
    if array.null_count:
        raise missing(path, name)
    if not any(is_number(array.type) for is_number in numbers):
        what = f"{array.type}, and features are numbers"
        if name == LISTS:
            raise FedmapError(f"{path}: column {name} is {what}")
        raise NoNumbersError(path, name, what)
    return array.to_numpy(zero_copy_only=False).reshape(shape)
