"""Tables with named columns, to a Dataset: one file for each client, or one file of all rows, in
which a column may name the client. What the readers of .csv and .parquet share."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fedmap.data.dataset import Dataset
from fedmap.data.own.arrays import Pair, combine, grouped, natural, pooled
from fedmap.data.own.client_files import combine_files, list_files, require_there
from fedmap.data.registry import spoken
from fedmap.errors import FedmapError

MOST_VALUES = 1000  # of one column of categories


class Table(Protocol):
    """One file whose columns can be had by name, with a value in every row."""

    @property
    def path(self) -> Path: ...

    @property
    def names(self) -> Sequence[str]:
        """Its columns."""
        ...

    @property
    def rows(self) -> Sequence[int]:
        """The number of each row, as people count the rows of such a file."""
        ...

    def column(self, name: str) -> Sequence[str]:
        """A column as text."""
        ...

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """A column of numbers."""
        ...


class Chosen(NamedTuple):
    """The columns that are no plain features, as the user says."""

    label: str
    client: str | None
    categories: Sequence[str]

    def require(self, path: Path, there: Iterable[str]) -> None:
        """Refuse a file without one of them; the sentence says where it was chosen."""
        chosen = [self.label, self.client, *self.categories]
        for name in chosen:
            if name is not None and chosen.count(name) > 1:
                raise FedmapError(
                    f"{path}: column {name} can be only one of label, client, category"
                )
        named = [("label_column", self.label), ("client_column", self.client)]
        for option, name in [*named, *(("categories", name) for name in self.categories)]:
            if name is not None and name not in there:
                raise no_column(path, name, there, f"; choose with {spoken(option)}")


def no_column(path: Path, name: str, there: Iterable[str], more: str = "") -> FedmapError:
    """The sentence for a column that is not in a file."""
    return FedmapError(f"{path}: there is no column {name!r}; there are: {', '.join(there)}{more}")


class NoNumbersError(FedmapError):
    """A column of features is something else; the sentence says how to train with it."""

    def __init__(self, path: Path, name: str, what: str) -> None:
        self.what = f"{path}: column {name} is {what}"
        super().__init__(
            f"{self.what}; remove it, or make features of its values with "
            f"{spoken('categories')} {name}"
        )


def table_files(path: Path, suffix: str, chosen: Chosen) -> list[Path]:
    """The files of a folder, or the one file."""
    require_there(path)
    if path.is_file():
        return [path]
    if chosen.client is not None:
        raise FedmapError(
            f"{path}: {spoken('client_column')} is for one file of all clients; in a folder each "
            "file is a client"
        )
    return list_files(path, suffix)


def feature_columns(tables: Sequence[Table], chosen: Chosen) -> list[str]:
    """The columns of features, which all files must have, in the order of the first file."""
    first = tables[0]
    for table in tables:
        if set(table.names) != set(first.names):
            raise FedmapError(
                f"{table.path}: columns {', '.join(table.names)} but {first.path} has "
                f"{', '.join(first.names)}; all clients need the same"
            )
    names = [name for name in first.names if name not in (chosen.label, chosen.client)]
    if not names:
        raise FedmapError(f"{first.path}: there is no column of features")
    return names


def samples(
    tables: Sequence[Table], names: list[str], categories: Sequence[str]
) -> tuple[tuple[str, ...], list[npt.NDArray[np.float64]]]:
    """The names of the features, and each table's features (n, d): numbers, or for a column of
    categories one feature for each of its values, which is 1 where the row has it."""
    features: list[str] = []
    columns: list[list[Any]] = [[] for _ in tables]
    for name in names:
        if name not in categories:
            features.append(name)
            numbers = [table.numbers(name) for table in tables]
            _refuse_too_alike(tables[0].path, name, np.concatenate(numbers))
            for own, values_of_one in zip(columns, numbers, strict=True):
                own.append(values_of_one)
            continue
        cells = [np.array(table.column(name)) for table in tables]
        values = sorted({value for column in cells for value in column.tolist()}, key=natural)
        if len(values) > MOST_VALUES:
            raise FedmapError(
                f"{tables[0].path}: column {name} has {len(values)} different values; at most "
                f"{MOST_VALUES} can become features with {spoken('categories')}"
            )
        features += [f"{name}={value}" for value in values]
        for column, own in zip(cells, columns, strict=True):
            own += [column == value for value in values]
    return tuple(features), [np.stack(own, 1).astype(np.float64) for own in columns]


def _refuse_too_alike(path: Path, name: str, values: npt.NDArray[Any]) -> None:
    """Samples are 32-bit floats, to which numbers that differ little beside their size are one."""
    largest = float(np.abs(values).max())
    deviation = float(values.std(dtype=np.float64))
    if 0 < deviation < 10 * float(np.spacing(np.float32(largest))):
        raise FedmapError(
            f"{path}: the values of column {name} differ by {deviation:.2g} and are as large as "
            f"{largest:.2g}, which 32-bit numbers cannot tell apart: subtract the smallest one, or "
            "use another unit"
        )


def combine_tables(
    path: Path,
    kind: str,
    tables: Sequence[Table],
    pairs: Sequence[Pair],
    chosen: Chosen,
    size: tuple[int, int] | None = None,
) -> Dataset:
    """One Dataset from the samples and labels of each table."""
    if not path.is_file():
        by_file = {table.path: pair for table, pair in zip(tables, pairs, strict=True)}
        return combine_files(path, by_file, kind, size)
    (table,), (pair,), name = tables, pairs, f"{kind}:{path.name}"
    if chosen.client is None:
        return pooled(str(path), pair, name=name, size=size)
    return combine(grouped(pair, table.column(chosen.client)), None, name=name, size=size)
