"""Tables as .csv files: one file for each client (test.csv is the shared test set), or one file of
all rows, in which a column may name the client. A spreadsheet's row 1 is the header."""

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedmap.data.dataset import LARGEST, Dataset
from fedmap.data.files.regular import require_regular
from fedmap.data.own.tables import (
    Chosen,
    NoNumbersError,
    combine_tables,
    feature_columns,
    no_column,
    samples,
    table_files,
)
from fedmap.data.registry import register_format
from fedmap.errors import FedmapError

MISSING = {"", "na", "n/a", "nan", "null", "none", "?"}  # in lower case
SEPARATORS = ",;\t"
NAME = re.compile(r"[+-]?0\d")  # a number with a zero before it
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
Column = tuple[str, ...]


class Table(NamedTuple):
    """The cells of one file as text."""

    path: Path
    columns: dict[str, Column]
    rows: list[int]  # the number of each row in the file

    @property
    def names(self) -> Column:
        """The columns in their order."""
        return tuple(self.columns)

    def column(self, name: str) -> Column:
        """A column by name, with a value in every row."""
        if name not in self.columns:
            raise no_column(self.path, name, self.names)
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
        raise NoNumbersError(
            self.path, name, f"no column of numbers, such as {cell!r} in row {row}"
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
    chosen = Chosen(label_column, client_column, categories)
    tables = [read_table(file) for file in table_files(path, ".csv", chosen)]
    for table in tables:
        chosen.require(table.path, table.names)
    features, x = samples(tables, feature_columns(tables, chosen), categories)
    pairs = list(zip(x, labels(tables, label_column), strict=True))
    return replace(combine_tables(path, "csv", tables, pairs, chosen), features=features)


def read_table(path: Path) -> Table:
    """The cells of a file with a header; the columns are divided by commas, semicolons or tabs.
    Where semicolons divide them, as a spreadsheet does where people write 0,5, so does the file."""
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
    if "" in header:
        raise FedmapError(
            f"{path}: row 1 has no name for column {header.index('') + 1}; write one or remove the "
            "column (pandas writes row numbers there: to_csv(..., index=False) leaves them out)"
        )
    twice = [name for place, name in enumerate(header) if name in header[:place]]
    if twice:
        raise FedmapError(f"{path}: row 1 has the column {twice[0]} twice; each needs its own name")
    if len(lines) < 2:
        raise FedmapError(f"{path}: there is no row below its header")
    for number, row in lines:
        if len(row) != len(header):
            raise FedmapError(
                f"{path}: row {number} has {len(row)} values, but there are {len(header)} columns"
            )
    columns = dict(zip(header, zip(*(row for _, row in lines[1:]), strict=True), strict=True))
    if separator == ";":
        columns = {name: tuple(map(_with_point, cells)) for name, cells in columns.items()}
    return Table(path, columns, [number for number, _ in lines[1:]])


def _with_point(cell: str) -> str:
    """A number's decimal comma as a point."""
    return cell.replace(",", ".") if DECIMAL_COMMA.fullmatch(cell) else cell


def labels(tables: list[Table], name: str) -> list[Any]:
    """Each table's labels: numbers where all of all tables are, else text. 007 is a name, which 7
    is not."""
    cells = [table.column(name) for table in tables]
    numbers = [as_numbers(column) for column in cells]
    names = any(NAME.match(cell) for column in cells for cell in column)
    if names or any(column is None for column in numbers):
        return [np.array(column) for column in cells]
    return numbers


def as_numbers(cells: Column) -> npt.NDArray[np.float64] | None:
    """The numbers that the cells are; None where one is none."""
    try:
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return None
