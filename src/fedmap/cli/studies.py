"""`fedmap study`: the plan, the progress of the whole and of each piece of work, and what came out."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedmap.cli.show import duration
from fedmap.experiment.plan import Plan, carry_out, plan
from fedmap.experiment.work import OnStep, Work
from fedmap.paper import STUDIES
from fedmap.paper.report import size_in_words, write_report


def study(
    name: str,
    scale: str,
    chosen: dict[str, Any],
    out: Path,
    runs: Path,
    plan_only: bool,
    report_only: bool,
    quiet: bool,
) -> None:
    its = STUDIES[name]
    choice = its.choice(scale, **chosen)
    screen = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
    screen.print(f"{name}: {its.line}. {size_in_words(its.cuts(choice.scale))}")
    if not report_only:
        planned = plan(its.work(choice), runs)
        show_plan(planned, screen)
        if plan_only:
            return
        with Progression(planned, screen).shown() as progression:
            carry_out([work for work, _ in planned.left], runs, progression.of)
    written = write_report(its, name, choice, its.collect(choice, runs), out)
    print(written[-1].read_text())
    screen.print("written: " + ", ".join(str(path) for path in written))


def show_plan(planned: Plan, screen: Console) -> None:
    screen.print(
        f"{len(planned.left)} to do, {len(planned.done)} done already; about "
        f"{duration(planned.seconds)} on this machine as it is now"
    )
    for work, seconds in planned.left:
        screen.print(f"  {work.label}: {work.steps} steps, {duration(seconds)}")


class Progression:
    """How far the whole is, by the planned seconds, corrected by how fast the work really goes."""

    def __init__(self, planned: Plan, screen: Console) -> None:
        self.planned = {work.name: seconds for work, seconds in planned.left}
        self.screen = screen
        self.finished = 0.0  # planned seconds of finished work
        self.began = time.monotonic()
        self.live: Progress | None = None

    @contextmanager
    def shown(self) -> Iterator["Progression"]:
        if self.screen.quiet or not self.screen.is_terminal:
            yield self
            return
        columns = (
            TextColumn("{task.description:<44}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[now]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.screen) as self.live:
            self.whole = self.live.add_task(
                "the whole study", total=sum(self.planned.values()) or 1, now=""
            )
            yield self

    def of(self, work: Work) -> OnStep:
        planned, before = self.planned[work.name], self.finished
        self.finished += planned
        task = self.live.add_task(work.label, total=work.steps, now="") if self.live else None
        if self.live:
            for old in self.live.task_ids[1:-6]:
                self.live.update(old, visible=False)
        first: int | None = None

        def on_step(step: int, now: str) -> None:
            nonlocal first
            first = step - 1 if first is None else first  # resumed work begins later
            passed = before + planned * (step - first) / max(work.steps - first, 1)
            left = (
                (time.monotonic() - self.began)
                / max(passed, 1e-9)
                * (sum(self.planned.values()) - passed)
            )
            if self.live and task is not None:
                self.live.update(task, completed=step, now=now)
                self.live.update(self.whole, completed=passed, now=f"{duration(left)} left")
            elif step == work.steps or step % 10 == 0:
                self.screen.print(
                    f"{work.label}: {step}/{work.steps}  {now}  ({duration(left)} of the whole "
                    "left)"
                )
                sys.stderr.flush()

        return on_step
