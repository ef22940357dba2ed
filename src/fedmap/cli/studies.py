"""What `study` does once its options are read: the plan, the work, and what came out."""

from pathlib import Path
from typing import Any

from rich.console import Console

from fedmap.cli import show
from fedmap.errors import FedmapError
from fedmap.experiment.plan import carry_out, plan
from fedmap.experiment.progress import Watch
from fedmap.paper import STUDIES
from fedmap.paper.report import size_in_words, write_report
from fedmap.paper.study import Row, from_csv


def study(
    name: str,
    scale: str,
    chosen: dict[str, Any],
    out: Path,
    runs: Path,
    known: Path | None,
    plan_only: bool,
    report_only: bool,
    quiet: bool,
) -> None:
    """Show the plan, carry it out, and write the report of what is done."""
    study = STUDIES[name]
    choice = study.choice(scale, **chosen)
    console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
    console.print(f"{name}: {study.line}. {size_in_words(study.cuts(choice.scale))}")
    rows = known_rows(known, f"{name}-{choice.scale}.csv") if known else []
    if not report_only:
        there = study.rows_by_name(choice, rows)
        planned = plan([work for work in study.work(choice) if work.name not in there], runs)
        if there:
            console.print(f"{len(there)} are known from {known}")
        show.the_plan(planned, console)
        if plan_only:
            return
        with show.Display(quiet, console).shown() as display:
            watch = Watch(planned.left, display)
            carry_out([work for work, _ in planned.left], runs, watch.of)
    written = write_report(study, name, choice, study.collect(choice, runs, rows), out)
    print(written[-1].read_text())
    console.print("written: " + ", ".join(str(path) for path in written))


def known_rows(folder: Path, name: str) -> list[Row]:
    """The rows that a folder of tables has of a study and scale, if any."""
    if not folder.is_dir():
        raise FedmapError(f"there is no folder {folder} to know rows from (--known)")
    return from_csv(folder / name) if (folder / name).exists() else []
