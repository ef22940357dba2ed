"""What `study` does once its options are read: the plan, the work, and what came out."""

from pathlib import Path
from typing import Any

from rich.console import Console

from fedmap.cli import show
from fedmap.experiment.plan import carry_out, plan
from fedmap.experiment.progress import Watch
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
    """Show the plan, carry it out, and write the report of what is done."""
    study = STUDIES[name]
    choice = study.choice(scale, **chosen)
    console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
    console.print(f"{name}: {study.line}. {size_in_words(study.cuts(choice.scale))}")
    if not report_only:
        planned = plan(study.work(choice), runs)
        show.the_plan(planned, console)
        if plan_only:
            return
        with show.Display(quiet, console).shown() as display:
            watch = Watch(planned.left, display)
            carry_out([work for work, _ in planned.left], runs, watch.of)
    written = write_report(study, name, choice, study.collect(choice, runs), out)
    print(written[-1].read_text())
    console.print("written: " + ", ".join(str(path) for path in written))
