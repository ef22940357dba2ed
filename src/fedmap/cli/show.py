"""What a person sees while runs go on and when they are done: progress on standard error, tables on
standard output."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, ProgressColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table

from fedmap.cli.parsing import printable
from fedmap.experiment.plan import Plan
from fedmap.experiment.progress import Progress
from fedmap.report import table as report
from fedmap.report.table import Row, as_table
from fedmap.report.table import Table as Cells
from fedmap.simulate.result import Result

WIDE = 100  # columns of a terminal that has room for bars
ROOM = 10_000  # columns, for any table
MOST_BARS = 8  # as many lines as any terminal shows
MOST_LINES = 20  # of all work, but at least one for each piece, where there is no terminal


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Display:
    """Shows the progress of an experiment each time it is called with it: live bars on a terminal,
    plain lines elsewhere, nothing when quiet."""

    def __init__(self, quiet: bool, console: Console | None = None) -> None:
        self.quiet = quiet
        self.console = console or Console(stderr=True)
        self.bars: Bars | None = None
        self.tasks: dict[str, TaskID] = {}

    @contextmanager
    def shown(self) -> Iterator["Display"]:
        """Bars are on the screen inside."""
        if self.quiet or not self.console.is_terminal:
            yield self
            return
        with Bars(*columns(self.console.width), console=self.console) as self.bars:
            yield self
        self.bars = None

    def __call__(self, progress: Progress) -> None:
        """Show where the experiment stands now."""
        if self.quiet:
            return
        if self.bars:
            self._move_bars(self.bars, progress)
        elif progress.step == progress.steps or progress.step % spacing(progress) == 0:
            print(f"{progress.label}  {words(progress)}", file=sys.stderr, flush=True)

    def _move_bars(self, bars: Bars, progress: Progress) -> None:
        alone = progress.pieces == 1
        if not self.tasks and not alone:
            self.tasks[""] = bars.add_task("all together", total=1, now="")
        if progress.label not in self.tasks:
            task = bars.add_task(progress.label, total=progress.steps, now="")
            self.tasks[progress.label] = task
            for old in list(self.tasks.values())[1:-MOST_BARS]:
                bars.update(old, visible=False)
        now = words(progress) if alone else counted(progress)
        task, total = self.tasks[progress.label], progress.steps  # fewer where it ended early
        bars.update(task, total=total, completed=progress.step, now=now)
        if not alone:
            left = f"{progress.share:4.0%}  {duration(progress.seconds_left)} left"
            bars.update(self.tasks[""], completed=progress.share, now=left)


def columns(width: int) -> list[ProgressColumn]:
    """What a line has: a label, a bar and words, or on a narrow terminal the words below the label.
    Where even that is too long it goes on in the next line; nothing is cut."""

    def text(format: str) -> TextColumn:
        return TextColumn(format, markup=False, table_column=Column(overflow="fold"))

    label, now = "{task.description}", "{task.fields[now]}"
    if width < WIDE:
        return [text(f"{label}\n  {now}")]
    return [text(label), BarColumn(bar_width=20), text(now), TimeElapsedColumn()]


def counted(progress: Progress) -> str:
    """How far one piece of work is."""
    return f"{progress.step}/{progress.steps}  {progress.now}"


def words(progress: Progress) -> str:
    """How far one piece of work is, and how long the whole will take."""
    return f"{counted(progress)}  {duration(progress.seconds_left)} left"


def spacing(progress: Progress) -> int:
    """Every how many steps there is a line: the fewer for one piece of work, the more pieces."""
    lines = max(MOST_LINES // progress.pieces, 1)
    return max(progress.steps // lines, 1)


def the_plan(planned: Plan, console: Console, memory: str = "") -> None:
    """What is to be done, how long it will take, and with how much memory."""
    console.print(
        f"{len(planned.left)} to do, {len(planned.done)} done already; about "
        f"{duration(planned.seconds)}{memory} on this machine as it is now"
    )
    for work, seconds in planned.left:
        begun = planned.begun.get(work.name)
        done = f" ({begun} of them done)" if begun else ""
        left = duration(planned.seconds_of(work, seconds))
        console.print(printable(f"  {work.label}: {work.steps} steps{done}, {left}"), markup=False)


def results(rows: list[Row], entries: list[dict[str, Any]], as_json: bool) -> None:
    """A comparison on standard output: a table for people, and its entries as JSON where they are
    asked for."""
    if as_json:
        print(json.dumps(entries, indent=1))
    else:
        cells(as_table(rows, "Accuracy in %"))


def cells(table: Cells) -> None:
    """A table for people; Markdown where it is piped."""
    console = Console()
    if not console.is_terminal:
        print(table.markdown(), end="")
        return
    grid = Table(title=table.caption, title_justify="left")
    for name in table.head:
        head = name.replace(" ", "\n")  # so that a column is as narrow as its cells
        grid.add_column(head, justify="left" if name in ("method", "client") else "right")
    for line in table.lines:
        grid.add_row(*(escape(printable(cell)) for cell in line))
    room = console.options.update(width=ROOM)
    if Measurement.get(console, room, grid).maximum > console.width:
        below_each_other(table, console)
    else:
        console.print(grid)


def below_each_other(table: Cells, console: Console) -> None:
    """A table that is too wide for the terminal: a block for each line, with a cell in each."""
    console.print(table.caption, markup=False, highlight=False)
    for first, *others in table.lines:
        console.print(printable(first), markup=False, highlight=False, style="bold")
        for name, cell in zip(table.head[1:], others, strict=True):
            console.print(printable(f"  {name}: {cell}"), markup=False, highlight=False)


def left_out(found: dict[str, list[Result]]) -> None:
    """What of the uploads does not count in these results."""
    for line in report.left_out(found):
        print(printable(f"\n{line}"))


def statistics(title: str, numbers: dict[str, Any], as_json: bool) -> None:
    """Numbers by name on standard output; a number may be several with names of their own."""
    if as_json:
        print(json.dumps(numbers, indent=1))
        return
    print(title)
    for name, number in numbers.items():
        several = number if isinstance(number, dict) else {"": number}
        listed = ", ".join(f"{key} {value:g}".strip() for key, value in several.items())
        print(f"  {name.replace('_', ' ')}: {listed}")
