"""What a study is: pieces of work, the numbers collected from them, and the tables and figures that
are made of the numbers."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from matplotlib.figure import Figure

from fedmap.errors import FedmapError
from fedmap.experiment.work import Work
from fedmap.registry import Registry, nearest
from fedmap.report.table import Table

Scale = Literal["smoke", "small", "paper"]
Row = dict[str, Any]  # one line of a study's CSV; every line of a study has the same names


@dataclass(frozen=True)
class Choice:
    """Which part of a study, and how large."""

    scale: Scale
    columns: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (0,)
    # each method with its default parameters alone, where a study has the paper's three groups
    defaults_only: bool = False
    workers: int = 1
    data_dir: str | None = None


@dataclass(frozen=True)
class Report:
    """What a reader gets to see."""

    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)  # a sentence each


class Study:
    """One table or figure of the paper. A subclass says which work it needs, collects its numbers,
    and shows them."""

    line: ClassVar[str]  # what it shows, in one line
    paper: ClassVar[str]  # which table or figure of the paper
    columns: ClassVar[Sequence[str]] = ()  # what `--columns` chooses from
    methods: ClassVar[Sequence[str]] = ()  # what `--methods` chooses from

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns

    def cuts(self, scale: Scale) -> list[str]:
        """What is less than in the paper, in words."""
        return []

    def work(self, choice: Choice) -> Sequence[Work]:
        raise NotImplementedError

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        """The numbers of the finished work."""
        raise NotImplementedError

    def report(self, rows: list[Row]) -> Report:
        """Tables and figures from the numbers alone, so that they can be made again without the
        work."""
        raise NotImplementedError

    def choice(
        self, scale: str, columns: Sequence[str] = (), methods: Sequence[str] = (), **more: Any
    ) -> Choice:
        """A checked choice; what is not given is the scale's default."""
        scales: dict[str, Scale] = {"smoke": "smoke", "small": "small", "paper": "paper"}
        if scale not in scales:
            raise FedmapError(f"there is no scale {scale!r}; there are: {', '.join(scales)}")
        for what, given, allowed in (
            ("column", columns, self.columns),
            ("method", methods, self.methods),
        ):
            for name in given:
                if name not in allowed:
                    raise FedmapError(
                        f"this study has no {what} {name!r}; "
                        + (nearest(name, allowed) if allowed else "it has none")
                    )
        chosen = tuple(columns) or tuple(self.default_columns(scales[scale]))
        return Choice(scales[scale], chosen, tuple(methods) or tuple(self.methods), **more)


STUDIES: Registry[Study] = Registry("study")


def to_csv(rows: list[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def from_csv(path: Path) -> list[Row]:
    """The rows that `to_csv` wrote: numbers as numbers, an empty cell as None."""

    def value(cell: str) -> Any:
        try:
            return int(cell)
        except ValueError:
            pass
        try:
            return float(cell)
        except ValueError:
            return cell or None

    try:
        with open(path, newline="") as file:
            return [
                {name: value(cell) for name, cell in row.items()} for row in csv.DictReader(file)
            ]
    except FileNotFoundError:
        raise FedmapError(f"there is no file {path}") from None
