"""What a person sees while runs go on and when they are done: progress on standard error, tables on
standard output."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedmap.report.table import COLUMNS, as_json, markdown, rows
from fedmap.simulate import Result

Record = dict[str, Any]
OnRound = Callable[[Record], None]


def percent(value: float | None) -> str:
    return "   - " if value is None else f"{100 * value:4.1f}%"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Display:
    """Progress of one or more runs: a live display on a terminal, plain lines elsewhere, nothing
    when quiet."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.console = Console(stderr=True)
        self.live: Progress | None = None

    @contextmanager
    def shown(self) -> Iterator["Display"]:
        if self.quiet or not self.console.is_terminal:
            yield self
            return
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=24),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("global {task.fields[global_]}  personal {task.fields[personal]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self.console, speed_estimate_period=120) as self.live:
            yield self
        self.live = None

    def a_run(self, name: str, rounds: int) -> OnRound:
        """The function to call after each round of one run."""
        if self.quiet:
            return lambda record: None
        if self.live is None:
            return self._plain(name, rounds)
        live, task = (
            self.live,
            self.live.add_task(name, total=rounds, global_="    -", personal="    -"),
        )
        for finished in live.task_ids[:-8]:  # as many lines as any terminal shows
            live.update(finished, visible=False)

        def update(record: Record) -> None:
            live.update(
                task,
                completed=record["round"],
                global_=percent(record["global_accuracy"]),
                personal=percent(record["personal_accuracy"]),
            )

        return update

    def _plain(self, name: str, rounds: int) -> OnRound:
        began, first = time.perf_counter(), 0

        def line(record: Record) -> None:
            nonlocal first
            number = record["round"]
            first = first or number  # a resumed run begins later
            left = (time.perf_counter() - began) / (number - first + 1) * (rounds - number)
            both = f"global {percent(record['global_accuracy'])}  personal {percent(record['personal_accuracy'])}"
            print(
                f"{name}  round {number}/{rounds}  {both}  {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )

        return line


def results(table: dict[str, list[Result]], as_json_: bool) -> None:
    """The comparison on standard output: a table for people, Markdown where it is piped, JSON where
    it is asked for."""
    console = Console()
    if as_json_:
        print(json.dumps(as_json(table), indent=1))
    elif not console.is_terminal:
        print(markdown(rows(table)), end="")
    else:
        grid = Table(title="Accuracy in %", title_justify="left")
        grid.add_column("method")
        for column in [*COLUMNS.values(), "s/round"]:
            grid.add_column(column, justify="right")
        for row in rows(table):
            grid.add_row(row.method, *row.cells, row.seconds)
        console.print(grid)
