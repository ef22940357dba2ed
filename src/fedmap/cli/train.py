"""What `run`, `resume`, `compare`, `sweep` and `demo` do once their options are read."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import typer
from rich.console import Console

from fedmap import own_code
from fedmap.cli import before, show
from fedmap.cli.before import memory_of
from fedmap.cli.parsing import printable, say
from fedmap.errors import FedmapError
from fedmap.experiment.compare import Comparison
from fedmap.experiment.lists import Runs, foreseen, in_order
from fedmap.experiment.measure import peak_memory
from fedmap.experiment.plan import Plan, plan
from fedmap.experiment.progress import Seconds, Watch
from fedmap.experiment.runs import RunWork
from fedmap.report.table import as_json, rows
from fedmap.signals import Stopped
from fedmap.simulate.folder import resume_command
from fedmap.simulate.progress import by_round, say_early_end
from fedmap.simulate.run import Run
from fedmap.simulate.same import difference
from fedmap.simulate.settings import FEDERATION, Settings, read_code, read_federation
from fedmap.track import trackers

C = TypeVar("C", bound=Comparison)
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
            f"code of the run ended the process with SystemExit ({wrong.code}) in {folder}; "
            "methods and nets raise an error instead"
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
    track: Sequence[str] | None = None,
) -> None:
    """One run with its progress; then the table. `kept` is what the run to repeat says of its
    federation and code; a dry run stops before training; `track` names who else is told."""
    callbacks = trackers(track or ())
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
    work = RunWork(settings, settings.label, federation)
    seconds = Seconds(1.0) if quiet or json else foreseen({"": [work]}, [work])[id(work)]
    with (
        stoppable(folder, resume_command(folder)),
        show.Display(quiet or json).shown() as display,
    ):
        on_step = Watch([(work, seconds)], display).of(work)
        told = [make() for make in callbacks]
        result = Run(settings, federation, folder).go(resume, by_round(on_step), anyway, told)
        say_early_end(on_step, settings.rounds, len(result.rounds))
    found = {settings.label: [result]}
    show.results(rows(found), as_json(found), json)
    if not json:
        show.left_out(found)
        print(f"\nrun folder: {folder}")


def many_runs(
    experiment: Callable[..., C],
    out: Path,
    quiet: bool,
    json: bool,
    track: Sequence[str] | None = None,
    at_last: Callable[[C], list[str]] = lambda comparison: [],
) -> None:
    """An experiment with its progress; then the tables, what came out, the pictures, and what else
    there is to say."""
    told, silent = trackers(track or ()), quiet or json
    with stoppable(out, "the same command"), show.Display(silent).shown() as display:
        seen = None if silent else display
        comparison = experiment(out=out, on_progress=seen, callbacks=told)
    show.results(comparison.rows(), comparison.json(), json)
    pictures, tables = comparison.pictures(), comparison.tables()
    if not json:
        show.left_out(comparison.results)
        clients = comparison.by_client()
        if 0 < len(clients.lines) <= MOST_CLIENTS:
            print()
            show.cells(clients)
        print()
        for sentence in comparison.sentences():
            print(sentence)
        for what, path in pictures.items():
            print(f"{what}: {path}")
        for what, path in tables.items():
            print(f"{what}: {path} (also .md and .tex)")
        print(f"run folders: {out}\nall of it as a page: fedmap report {shlex.quote(str(out))}")
        for sentence in at_last(comparison):
            print(printable(sentence))


def show_plan(runs: Runs, out: Path) -> Plan:
    """What would be done, what is done already, and what it would cost."""
    work, before = in_order(runs), peak_memory()
    planned = plan(work, out)
    memory = memory_of(work[0].settings, before, peak_memory())
    show.the_plan(planned, Console(highlight=False, soft_wrap=True), memory)
    for done in planned.done:
        print(printable(f"  {done.label}: done"))
    return planned
