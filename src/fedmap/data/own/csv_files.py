"""Tables as .csv files: one file for each client (test.csv is the shared test set), or one file of
all rows, in which a column may name the client. A spreadsheet's row 1 is the header."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedmap.data.dataset import LARGEST, Dataset
from fedmap.data.files.regular import require_regular
from fedmap.data.own.arrays import Pair, combine, grouped, natural, pooled
from fedmap.data.own.client_files import combine_files, list_files
from fedmap.data.registry import register_format
from fedmap.errors import FedmapError

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}  # in lower case
MOST_VALUES = 1000  # of one column of categories
SEPARATORS = ",;\t"
Column = tuple[str, ...]


class Table(NamedTuple):
    """The cells of one file as text."""

    path: Path
    columns: dict[str, Column]
    rows: list[int]  # the number of each row in the file

    def column(self, name: str) -> Column:
        """A column by name, with a value in every row."""
        if name not in self.columns:
            raise FedmapError(
                f"{self.path}: there is no column {name!r}; there are: {', '.join(self.columns)}"
            )
        cells = tuple(cell.strip() for cell in self.columns[name])
        for row, cell in zip(self.rows, cells, strict=True):
            if cell.lower() in MISSING:
                raise FedmapError(
                    f"{self.path}: row {row} has no value in column {name}; fill it or remove the "
                    "row"
                )
        return cells

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A column of numbers by name."""
        cells = self.column(name)
        values = as_numbers(cells)
        if values is not None:
            self._refuse_too_large(name, values)
            return values
        row, cell = next(
            (r, c) for r, c in zip(self.rows, cells, strict=True) if as_numbers((c,)) is None
        )
        raise FedmapError(
            f"{self.path}: column {name} is no column of numbers, such as {cell!r} in row {row}; "
            f"remove it, or make features of its values with categories ({name})"
        )

    def _refuse_too_large(self, name: str, values: npt.NDArray[np.float64]) -> None:
        wrong = np.flatnonzero(~(np.abs(values) <= LARGEST))
        if len(wrong):
            cell, row = self.columns[name][wrong[0]].strip(), self.rows[wrong[0]]
            raise FedmapError(
                f"{self.path}: row {row} has {cell} in column {name}; numbers up to {LARGEST:.3g} "
                "are allowed, so that they can be squared: correct it or use another unit"
            )


@register_format(
    "csv",
    "one .csv file for each client, or one file for all: a column of labels, the others numbers",
)
def read_csv(
    path: Path,
    *,
    label_column: str = "y",
    client_column: str | None = None,
    categories: Sequence[str] = (),
) -> Dataset:
    """Read a folder of .csv files, or one file, whose rows belong to the clients that
    `client_column` names, or to nobody yet.

    All columns but these two are features: numbers, or for a column of `categories` one feature for
    each of its values, which is 1 where the row has it."""
    files = [path] if path.is_file() else list_files(path, ".csv")
    if client_column is not None and not path.is_file():
        raise FedmapError(
            f"{path}: client_column is for one file of all clients; in a folder each file is a "
            "client"
        )
    tables = [read_table(file) for file in files]
    names = feature_columns(tables, {label_column, client_column}, categories)
    features, x = samples(tables, names, categories)
    y = labels(tables, label_column)
    pairs: dict[Path, Pair] = {file: (x[number], y[number]) for number, file in enumerate(files)}
    if not path.is_file():
        dataset = combine_files(path, pairs, "csv", None)
    elif client_column is None:
        dataset = pooled(str(path), pairs[path], name=f"csv:{path.name}")
    else:
        clients = grouped(pairs[path], tables[0].column(client_column))
        dataset = combine(clients, None, name=f"csv:{path.name}", size=None)
    return replace(dataset, features=features)


def read_table(path: Path) -> Table:
    """The cells of a file with a header; the columns are divided by commas, semicolons or tabs."""
    require_regular(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            separator = max(SEPARATORS, key=head.count)
            numbered = enumerate(csv.reader(file, delimiter=separator, strict=True), 1)
            lines = [(number, row) for number, row in numbered if row]
    except OSError as error:
        raise FedmapError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise FedmapError(f"{path}: not a .csv file in UTF-8 ({error})") from error
    header = [name.strip() for name in lines[0][1]] if lines else []
    if len(set(header)) < len(header) or "" in header:
        raise FedmapError(f"{path}: row 1 must have a different name for each column")
    if len(lines) < 2:
        raise FedmapError(f"{path}: there is no sample")
    for number, row in lines:
        if len(row) != len(header):
            raise FedmapError(
                f"{path}: row {number} has {len(row)} values, but there are {len(header)} columns"
            )
    columns = dict(zip(header, zip(*(row for _, row in lines[1:]), strict=True), strict=True))
    return Table(path, columns, [number for number, _ in lines[1:]])


def feature_columns(
    tables: list[Table], others: set[str | None], categories: Sequence[str]
) -> list[str]:
    """The columns of features, which all files must have, in the order of the first file."""
    first = tables[0]
    for table in tables:
        if table.columns.keys() != first.columns.keys():
            raise FedmapError(
                f"{table.path}: columns {', '.join(table.columns)} but {first.path} has "
                f"{', '.join(first.columns)}; all clients need the same"
            )
    for name in (*(other for other in others if other is not None), *categories):
        first.column(name)
    names = [name for name in first.columns if name not in others]
    if not names:
        raise FedmapError(f"{first.path}: there is no column of features")
    return names


def samples(
    tables: list[Table], names: list[str], categories: Sequence[str]
) -> tuple[tuple[str, ...], list[npt.NDArray[np.float64]]]:
    """The names of the features, and each table's features (n, d)."""
    features: list[str] = []
    columns: list[list[Any]] = [[] for _ in tables]
    for name in names:
        if name not in categories:
            features.append(name)
            for table, own in zip(tables, columns, strict=True):
                own.append(table.numbers(name))
            continue
        cells = [np.array(table.column(name)) for table in tables]
        values = sorted({value for column in cells for value in column.tolist()}, key=natural)
        if len(values) > MOST_VALUES:
            raise FedmapError(
                f"{tables[0].path}: column {name} has {len(values)} different values; at most "
                f"{MOST_VALUES} can become features"
            )
        features += [f"{name}={value}" for value in values]
        for column, own in zip(cells, columns, strict=True):
            own += [column == value for value in values]
    return tuple(features), [np.stack(own, 1).astype(np.float64) for own in columns]


def labels(tables: list[Table], name: str) -> list[Any]:
    """Each table's labels: numbers where all of all tables are, else text."""
    cells = [table.column(name) for table in tables]
    numbers = [as_numbers(column) for column in cells]
    if any(column is None for column in numbers):
        return [np.array(column) for column in cells]
    return numbers


def as_numbers(cells: Column) -> npt.NDArray[np.float64] | None:
    """The numbers that the cells are; None where one is none."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None
