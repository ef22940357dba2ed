"""One .parquet file for each client, with the label in column `y`; test.parquet, if there is one,
is the shared test set."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from fedmap.data.dataset import Dataset
from fedmap.data.own.arrays import Pair
from fedmap.data.own.client_files import combine_files, list_files
from fedmap.data.registry import register_format
from fedmap.errors import FedmapError

CAP = 1 << 31  # bytes that one file may unpack to


@register_format(
    "parquet",
    "one .parquet file for each client, with label y and features x or all other columns "
    "(needs fedmap[parquet])",
)
def read_parquet(
    path: Path, *, size: tuple[int, int] | None = None, label_column: str = "y"
) -> Dataset:
    """Read a folder of .parquet files.

    Features are the lists in column `x`, or, without it, all other columns in their order.
    """
    try:
        reader = import_module("pyarrow.parquet")
    except ImportError as error:
        raise FedmapError(
            "parquet files need pyarrow; install it with `pip install 'fedmap[parquet]'`"
        ) from error
    columns: dict[Path, list[str]] = {}
    pairs: dict[Path, Pair] = {}
    for file in list_files(path, ".parquet"):
        pairs[file], columns[file] = _read(reader, file, label_column)
    first, expected = next(iter(columns.items()))
    for file, found in columns.items():
        if found != expected:
            raise FedmapError(
                f"{file}: columns {', '.join(found)} but {first} has {', '.join(expected)}; "
                "all clients need the same"
            )
    dataset = combine_files(path, pairs, "parquet", size)
    return replace(dataset, features=() if expected == ["x"] else tuple(expected))


def _read(reader: Any, path: Path, label: str) -> tuple[Pair, list[str]]:
    """Samples and labels of a file, and the names of its features."""
    try:
        with reader.ParquetFile(path) as file:
            unpacked = _unpacked_bytes(file)
            if unpacked > CAP:
                raise FedmapError(
                    f"{path}: unpacks to {unpacked:,} bytes; at most {CAP:,} are allowed"
                )
            names = list(file.schema_arrow.names)
            if label not in names or len(names) < 2 or len(set(names)) < len(names):
                raise FedmapError(
                    f"{path}: columns {', '.join(names) or 'none'}; "
                    f"a label {label} and features x (or more columns) are needed"
                )
            features = ["x"] if "x" in names else [name for name in names if name != label]
            if not file.metadata.num_rows:
                raise FedmapError(f"{path}: there is no sample")
            table = file.read(columns=[*features, label], use_threads=False)
        return (_features(table, features, path), _labels(table, label, path)), features
    except FedmapError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise FedmapError(
            f"{path}: not a parquet file that can be read ({type(error).__name__}: {error})"
        ) from error


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


def _features(table: Any, features: list[str], path: Path) -> Any:
    """Vectors (n, d), or whatever shape the lists in column x have."""
    columns = [_numbers(table.column(name).combine_chunks(), name, path) for name in features]
    if features == ["x"]:
        return columns[0]
    return np.stack([column.astype(np.float64) for column in columns], 1)


def _numbers(array: Any, name: str, path: Path) -> Any:
    """A column of numbers, or of lists of numbers that all have the same length."""
    compute, types = import_module("pyarrow.compute"), import_module("pyarrow.types")
    lists = (types.is_list, types.is_large_list, types.is_fixed_size_list)
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
        raise FedmapError(f"{path}: column {name} has missing values; fill them or drop the rows")
    if not any(is_number(array.type) for is_number in numbers):
        raise FedmapError(f"{path}: column {name} is {array.type}; features must be numbers")
    return array.to_numpy(zero_copy_only=False).reshape(shape)


def _labels(table: Any, name: str, path: Path) -> Any:
    if table.column(name).null_count:
        raise FedmapError(f"{path}: column {name} has missing labels; drop these rows")
    return np.array(table.column(name).to_pylist())
