"""What `run`, `resume`, `compare`, `sweep` and `demo` do once their options are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from fedmap import own_code
from fedmap.cli import before, show
from fedmap.cli.parsing import say
from fedmap.errors import FedmapError
from fedmap.experiment.compare import Comparison
from fedmap.experiment.progress import Watch
from fedmap.experiment.runs import RunWork
from fedmap.report.table import as_json, rows
from fedmap.signals import Stopped
from fedmap.simulate.progress import by_round, say_early_end
from fedmap.simulate.run import Run, difference
from fedmap.simulate.settings import FEDERATION, Settings, read_code, read_federation

MOST_CLIENTS = 30  # on the screen; all are in clients.csv


@contextmanager
def stoppable(folder: Path, go_on: str) -> Iterator[None]:
    """Ctrl-C, SIGTERM and SIGHUP end runs in good order and say how to go on."""
    try:
        yield
    except (KeyboardInterrupt, Stopped) as stopped:
        kept = f"whole rounds are kept in {folder}. Go on with: {go_on}"
        say(f"\nstopped; {kept if folder.exists() else f'nothing is kept: {folder} is gone'}")
        raise typer.Exit(getattr(stopped, "code", 130)) from None
    except SystemExit as wrong:  # nothing of ours does that
        raise FedmapError(
            f"the method ended the process with SystemExit ({wrong.code}) in {folder}; a method "
            "raises an error instead"
        ) from wrong


def kept_of(file: Path, base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What the run to repeat says of its federation and its code, where the command says nothing
    else."""
    same_data = all(given.get(name) in (None, base.get(name)) for name in FEDERATION)
    code = read_code(file)
    same = {name: code[name] for name in code if given.get(name) in (None, base.get(name))}
    return (read_federation(file) if same_data else {}) | {"code": same}


def one_run(
    settings: Settings,
    out: Path | None,
    resume: bool,
    quiet: bool,
    json: bool,
    kept: dict[str, Any] | None = None,
    dry_run: bool = False,
    anyway: bool = False,
) -> None:
    """One run with its progress; then the table. `kept` is what the run to repeat says of its
    federation and code; a dry run stops before training."""
    changed = own_code.changed((kept or {}).get("code", {}), settings.code)
    if changed:
        raise FedmapError(
            f"{changed}; to run it all the same, remove the table [code] from the settings"
        )
    federation = settings.federation()
    differs = difference(kept or {}, federation)
    if differs:
        raise FedmapError(
            f"{settings.data} is not what it was: {differs}; to train on it all the same, remove "
            "the table [federation] from the settings"
        )
    settings = settings.resolved(federation)
    folder = out or Path("runs") / settings.name
    if dry_run or not (quiet or json or (folder / "run.toml").exists()):
        say("\n".join(before.summary(settings, federation)))
    if dry_run:
        return
    work = RunWork(settings, settings.label)
    with (
        stoppable(folder, f"fedmap resume {folder}"),
        show.Display(quiet or json).shown() as display,
    ):
        on_step = Watch([(work, work.steps)], display).of(work)
        result = Run(settings, federation, folder).go(resume, by_round(on_step), anyway)
        say_early_end(on_step, settings.rounds, len(result.rounds))
    found = {settings.label: [result]}
    show.results(rows(found), as_json(found), json)
    if not json:
        show.left_out(found)
        print(f"\nrun folder: {folder}")


def many_runs(experiment: Callable[..., Comparison], out: Path, quiet: bool, json: bool) -> None:
    """An experiment with its progress; then the tables, what came out, and the pictures."""
    with stoppable(out, "the same command"), show.Display(quiet or json).shown() as display:
        comparison = experiment(out=out, on_progress=display)
    show.results(comparison.rows(), comparison.json(), json)
    written = comparison.pictures() | comparison.tables()
    if not json:
        show.left_out(comparison.results)
        clients = comparison.by_client()
        if 0 < len(clients.lines) <= MOST_CLIENTS:
            print()
            show.cells(clients)
        print()
        for sentence in comparison.sentences():
            print(sentence)
        for what, path in written.items():
            print(f"{what}: {path}")
        print(f"run folders: {out}")
