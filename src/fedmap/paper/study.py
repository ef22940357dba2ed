"""What a study is: pieces of work, the numbers collected from them, and the tables, figures and
claims that follow from the numbers."""

import csv
import inspect
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from matplotlib.figure import Figure

from fedmap.errors import FedmapError
from fedmap.experiment.work import Work
from fedmap.methods import variant
from fedmap.paper.finding import Finding
from fedmap.registry import Registry, nearest
from fedmap.report.table import Table

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)  # the smallest first
GOALS = ("global", "personal")  # which of the two accuracies
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
    clip: float | None = None  # the longest gradient of a run's local steps
    params: dict[str, Any] = field(default_factory=dict)  # of every method that has them
    workers: int = 1
    engine: str = "auto"
    ray_address: str | None = None
    data_dir: str | None = None


@dataclass(frozen=True)
class Report:
    """What a reader gets to see."""

    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # sentences that judge nothing

    def sentences(self) -> list[str]:
        """The findings and then the notes, one sentence or two each."""
        return [*(finding.sentence() for finding in self.findings), *self.notes]


class Claim(NamedTuple):
    """What the paper says of a study, and the rule that judges it by the study's rows."""

    text: str
    # of the text and the rows; what it says of itself is when the claim holds, and when in part
    rule: Callable[[str, list[Row]], Finding]
    printed: str = ""  # how far the paper's own numbers bear it out

    @property
    def condition(self) -> str:
        """When it holds, and when in part."""
        said = inspect.getdoc(getattr(self.rule, "func", self.rule))
        return " ".join((said or "").split())

    def judge(self, rows: list[Row]) -> Finding:
        """How the claim fares with these rows."""
        return self.rule(self.text, rows)


class Study:
    """One table or figure of the paper. A subclass says which work it needs, collects its numbers,
    shows them, and judges the paper's claims by them."""

    line: ClassVar[str]  # what it shows, in one line
    paper: ClassVar[str]  # which table or figure of the paper
    columns: ClassVar[Sequence[str]] = ()  # what `--columns` chooses from
    methods: ClassVar[Sequence[str]] = ()  # what `--methods` chooses from
    clip: ClassVar[float | None] = None  # the longest gradient, where `--clip` does not say

    def default_columns(self, scale: Scale) -> Sequence[str]:
        """The columns of a scale, where none are chosen."""
        return self.columns

    def cuts(self, scale: Scale) -> list[str]:
        """What is less than in the paper, in words."""
        return []

    def work(self, choice: Choice) -> Sequence[Work]:
        """All pieces of work, in the order in which they are done."""
        raise NotImplementedError

    def where(self, work: Any) -> Row:
        """What tells a piece of work from all others; each of its rows begins with it."""
        raise NotImplementedError

    def numbers(self, work: Any, root: Path) -> list[Row]:
        """The rest of its rows, once it is done. A training in one place keeps them itself."""
        found: list[Row] = work.measured(root)
        return found

    def collect(self, choice: Choice, root: Path, known: Sequence[Row] = ()) -> list[Row]:
        """The rows of the finished work; of the rest those that are known already."""
        rows: list[Row] = []
        there = self.rows_by_name(choice, known)
        for work in self.work(choice):
            if work.done(root):
                rows += [self.where(work) | row for row in self.numbers(work, root)]
            else:
                rows += [row | self.where(work) for row in there.get(work.name, [])]
        return rows

    def rows_by_name(self, choice: Choice, rows: Sequence[Row]) -> dict[str, list[Row]]:
        """The rows of each piece of work that has some, by its name: a default and a group may be
        one run."""
        found: dict[str, list[Row]] = {}
        for work in self.work(choice) if rows else ():
            if mine := self.rows_of(work, rows):
                found[work.name] = mine
        return found

    def rows_of(self, work: Any, rows: Sequence[Row]) -> list[Row]:
        """The rows of one piece of work."""
        where = self.where(work).items()
        return [r for r in rows if all(r.get(name) == value for name, value in where)]

    def report(self, rows: list[Row]) -> Report:
        """Tables and figures from the numbers alone, so that they can be drawn again without the
        work."""
        raise NotImplementedError

    def not_run(self, rows: list[Row]) -> list[str]:
        """What else of the paper's work has no row, beside columns and methods; in words."""
        return []

    def claims(self) -> list[Claim]:
        """What the paper claims here, each with the rule that judges it."""
        return []

    def choice(
        self, scale: str, columns: Sequence[str] = (), methods: Sequence[str] = (), **more: Any
    ) -> Choice:
        """A checked choice; what is not given is the scale's default."""
        known = next((name for name in SCALES if name == scale), None)
        if known is None:
            raise FedmapError(f"there is no scale {scale!r}; there are: {', '.join(SCALES)}")
        require("column", columns, self.columns)
        known_methods = list(dict.fromkeys(variant(text)[0] for text in self.methods))
        require("method", [variant(text)[0] for text in methods], known_methods)
        chosen = tuple(columns) or tuple(self.default_columns(known))
        choice = Choice(known, chosen, tuple(methods) or tuple(self.methods), **more)
        self.check(choice)
        return choice

    def check(self, choice: Choice) -> None:
        """Raise an error for what this study cannot do."""
        if choice.clip is not None or choice.params:
            raise FedmapError("this study has no --clip and no --param: it trains single nets")


STUDIES: Registry[Study] = Registry("study")


def require(what: str, names: Sequence[str], allowed: Sequence[str]) -> None:
    """Raise an error for the first name that is not allowed."""
    for name in names:
        if name not in allowed:
            hint = nearest(name, allowed) if allowed else "it has none"
            raise FedmapError(f"this study has no {what} {name!r}; {hint}")


def names_of(rows: list[Row], what: str) -> list[Any]:
    """The different values of one name, in the order of the rows."""
    return list(dict.fromkeys(r[what] for r in rows))


def to_csv(rows: list[Row]) -> str:
    """The rows as CSV, with the first row's names as its head."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def from_csv(path: Path) -> list[Row]:
    """The rows that `to_csv` wrote: numbers as numbers, an empty cell as None."""

    def value(cell: str) -> Any:
        for number in (int, float):
            try:
                return number(cell)
            except ValueError:
                pass
        return cell or None

    try:
        with open(path, newline="") as file:
            lines = list(csv.DictReader(file))
    except FileNotFoundError:
        raise FedmapError(f"there is no file {path}") from None
    return [{name: value(cell) for name, cell in line.items()} for line in lines]
