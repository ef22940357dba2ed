"""The command line. Every command is thin: it reads options, calls the library and shows what comes
back."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from fedmap.cli import boards, data, flower, options, use
from fedmap.cli.options import Device, Engine, Json, Out, Quiet, RayAddress, Workers, takes
from fedmap.cli.parsing import (
    cores,
    default_workers,
    grid_values,
    listed,
    say,
    seed_list,
)
from fedmap.cli.report import report
from fedmap.errors import FedmapError
from fedmap.signals import Stopped, ending_handlers, on_signals

# torch and the rest of fedmap are imported inside the commands: `fedmap --help` must not wait for
# them.

app = typer.Typer(
    name="fedmap",
    help="Federated learning for clients that do not see every class: one global model that knows "
    "all of them, and a personal model for each client.\n\nStart with: fedmap demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data", rich_help_panel="Data")
app.add_typer(flower.app, name="flower", rich_help_panel="Beyond one machine")

SettingsFile = Annotated[
    Path | None,
    typer.Argument(
        help="Settings in TOML, e.g. a run's run.toml; options win.", show_default=False
    ),
]
SweepFile = Annotated[
    Path | None,
    typer.Argument(help="Settings in TOML with a table \\[grid]; options win.", show_default=False),
]
StudyName = Annotated[
    str | None, typer.Argument(help="The study; without it all are listed.", show_default=False)
]


@app.command(rich_help_panel="Train")
@takes(
    options.MethodOptions,
    options.NetOption,
    options.ClientOptions,
    options.TrainingOptions,
    options.GuardOptions,
    options.AttackOptions,
    options.SeedOption,
    options.RunOptions,
    options.TrustOption,
    options.DryRunOption,
)
def run(
    file: SettingsFile = None,
    out: Path | None = None,
    quiet: bool = False,
    as_json: bool = False,
    dry_run: bool = False,
    trust: bool = False,
    track: list[str] | None = None,
    **settings: Any,
) -> None:
    """Train with one method on one federation.

    It says first what it understood. What is not given is the paper's value for the dataset, a
    plain one for own data, and the method's own default. For
    example: fedmap run --method map --data fashion-mini --net lenet -p alpha=0.5"""
    from fedmap.cli.train import kept_of, one_run
    from fedmap.data import full_data_name
    from fedmap.own_code import KINDS
    from fedmap.simulate.settings import Settings, described, read_toml

    for name in settings.keys() & KINDS:
        settings[name] = full_data_name(settings[name])
    base = described(file) if file else {}
    # another method has other parameters
    same = settings.get("method") in (None, base.get("method"))
    params = (base.get("params", {}) if same else {}) | settings.get("params", {})
    merged = read_toml(file, settings, trust) if file else settings
    workers = default_workers(merged.get("device"))
    chosen = Settings.of({"workers": workers} | merged | {"params": params})
    kept = kept_of(file, base, settings) if file else {}
    one_run(chosen, out, False, quiet, as_json, kept, dry_run, track=track)


@app.command(rich_help_panel="Train")
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    rounds: Annotated[
        int | None, options.option("--rounds", "Go on to this many rounds in all.", options.HOW)
    ] = None,
    device: Device = None,
    workers: Workers = None,
    engine: Engine = None,
    ray_address: RayAddress = None,
    client_timeout: options.ClientTimeout = None,
    anyway: Annotated[
        bool,
        options.option(
            "--anyway", "Also with other versions or on another processor.", options.HOW
        ),
    ] = False,
    trust: options.Trust = False,
    track: options.Track = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with a run that was stopped, from its last whole round; the result is the same as if it
    had not been.

    With --rounds also a finished run goes on. It must have been started with --keep-states where
    the method's clients keep something. 50 and 50 rounds are then the same as 100 at once, but for
    methods that look at the number of all rounds: the inherited private model of FedPHP, MAP and
    ScaMAP moves more slowly the more rounds there are to come."""
    from fedmap.cli.train import one_run
    from fedmap.simulate.settings import Settings, described, read_toml

    if not (folder / "run.toml").exists():
        raise FedmapError(f"{folder} is not a run folder: it has no run.toml")
    if described(folder / "run.toml").get("data") == "arrays":
        raise FedmapError(
            f"the run in {folder} is on arrays given in Python; go on there with fedmap.run(..., "
            f"out={str(folder)!r}, resume=True)"
        )
    how: dict[str, Any] = {
        "workers": workers,
        "device": device,
        "engine": engine,
        "ray_address": ray_address,
        "rounds": rounds,
        "client_timeout": client_timeout,
    }
    given = {name: value for name, value in how.items() if value is not None}
    settings = read_toml(folder / "run.toml", given, trust)
    one_run(Settings.of(settings), folder, True, quiet, as_json, anyway=anyway, track=track)


@app.command(rich_help_panel="Train")
@takes(
    options.MethodsOption,
    options.SeedsOption,
    options.NetOption,
    options.ClientOptions,
    options.TrainingOptions,
    options.GuardOptions,
    options.AttackOptions,
    options.RunOptions,
    options.PlanOption,
)
def compare(
    methods: str,
    seeds: str,
    out: Path | None = None,
    quiet: bool = False,
    as_json: bool = False,
    track: list[str] | None = None,
    plan: bool = False,
    **settings: Any,
) -> None:
    """Train with several methods on the same federation: one table, one plot.

    A method may come with parameters, also several times. Stopped and started again, it skips what
    is done. For example: fedmap compare --methods "fedavg,map,map\\[alpha=0.5]" --seeds 0-2"""
    from fedmap.cli.train import many_runs, show_plan
    from fedmap.experiment.compare import compare, compared

    settings.setdefault("workers", default_workers(settings.get("device")))
    names, folder = listed(methods, "--methods"), out or Path("runs/compare")
    if plan:
        show_plan(compared(names, seed_list(seeds), **settings), folder)
        return
    comparison = partial(compare, names, seeds=seed_list(seeds), **settings)
    many_runs(comparison, folder, quiet, as_json, track)


@app.command(rich_help_panel="Train")
@takes(
    options.MethodOptions,
    options.GridOption,
    options.SweepSeedsOption,
    options.NetOption,
    options.ClientOptions,
    options.TrainingOptions,
    options.GuardOptions,
    options.AttackOptions,
    options.RunOptions,
    options.TrustOption,
    options.PlanOption,
)
def sweep(
    file: SweepFile = None,
    *,
    grid: list[str] | None,
    seeds: str | None,
    groups: bool,
    trials: int | None,
    prune: str | None,
    method: str | None = None,
    out: Path | None = None,
    quiet: bool = False,
    as_json: bool = False,
    track: list[str] | None = None,
    trust: bool = False,
    plan: bool = False,
    **settings: Any,
) -> None:
    """Train with every combination of some parameter values, or with --trials search for good ones:
    a table with the best first, a picture, and the command of the best.

    Stopped and started again, it skips what is done. For example: fedmap sweep --method map
    -g alpha=0.1,0.5,0.9 -g weight=0.01,0.1 --seeds 0-2 --validation 0.1, or
    fedmap sweep --method map -g alpha=0.1..0.9 -g weight=1e-3..1e-1:log --trials 20"""
    from fedmap.cli import sweeps

    given = settings | ({"method": method} if method else {})
    chosen = seed_list(seeds) if seeds else None
    asked = sweeps.Asked(grid_values(grid or [], "-g"), groups, trials, prune, chosen, given)
    if file:
        asked = asked.with_file(file, trust)
    folder = out or Path("runs/sweep")
    if plan:
        sweeps.show_plan(asked, folder)
    else:
        sweeps.sweep(asked, folder, quiet, as_json, track)


@app.command(rich_help_panel="Train")
def demo(
    rounds: Annotated[int, typer.Option("--rounds", help="Communication rounds.")] = 20,
    workers: Workers = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """See it work, in under two minutes: 20 clients that each miss some of Fashion-MNIST's classes,
    each alone and with six methods, three times."""
    from fedmap.cli.train import many_runs
    from fedmap.experiment.compare import compare

    comparison = partial(
        compare,
        ["local", "fedavg", "fedrs", "fedphp", "fedgela[loss=etf]", "map", "map[preset=own]"],
        seeds=(0, 1, 2),
        data="fashion-mini",
        net="lenet",
        clients=20,
        rounds=rounds,
        workers=workers or cores(),
    )
    many_runs(comparison, out or Path("runs/demo"), quiet, False)


@app.command(rich_help_panel="Train")
def watch(
    folder: Annotated[
        Path, typer.Argument(help="A run, or the folder of a comparison or a sweep.")
    ],
    once: Annotated[
        bool, options.option("--once", "Look once, and do not wait for the end.", options.HOW)
    ] = False,
) -> None:
    """Watch runs in the terminal, also those that were started elsewhere: rounds, both accuracies,
    time left, best round, bad uploads. It waits for a run that has not begun, and ends with it.

    Exit code 0: all is done; 1: a run was stopped or has diverged."""
    from fedmap.cli.watch import watch

    raise typer.Exit(watch(folder, once))


app.command(rich_help_panel="See what came out")(boards.leaderboard)
app.command(rich_help_panel="See what came out")(report)


for command in use.COMMANDS:
    app.command(rich_help_panel="Use the models")(command)


@app.command(rich_help_panel="The paper")
@takes(options.StudyOptions)
def study(
    name: StudyName = None,
    *,
    scale: str,
    columns: str | None,
    methods: str | None,
    defaults: bool,
    params: dict[str, Any] | None,
    clip: float | None,
    seeds: str,
    data_dir: str | None,
    workers: int | None,
    engine: str | None,
    ray_address: str | None,
    out: Path,
    runs: Path,
    known: Path | None,
    plan: bool,
    report: bool,
    quiet: bool,
) -> None:
    """Make a table or figure of the paper, beside the published numbers.

    It shows first what there is to do and how long it will take. Stopped and started again, it
    skips what is done."""
    from fedmap.cli import lists, studies
    from fedmap.cli.train import stoppable

    if name is None:
        lists.studies()
        return
    chosen = {
        "columns": listed(columns, "--columns", ";") if columns else [],
        "methods": listed(methods, "--methods") if methods else [],
        "seeds": seed_list(seeds),
        "defaults_only": defaults,
        "params": params or {},
        "clip": clip,
        "workers": workers or cores(),
        "engine": engine or "auto",
        "ray_address": ray_address,
        "data_dir": data_dir,
    }
    with stoppable(runs, "the same command"):
        studies.study(name, scale, chosen, out, runs, known, plan, report, quiet)


@app.command(rich_help_panel="Data")
@takes(options.ClientOptions, options.SeedOption, options.PictureOptions)
def partition(plot: Path | None = None, as_json: bool = False, **settings: Any) -> None:
    """Draw a partition: its statistics, and with --plot the client-by-class picture."""
    from fedmap.cli import show
    from fedmap.report import plots
    from fedmap.simulate.settings import Settings

    federation = Settings.of(settings).federation()
    drawn = "{data}, partition {partition}, seed {partition_seed}".format(**federation.origin)
    show.statistics(f"{drawn}: {federation.classes} classes", federation.summary(), as_json)
    if plot:
        picture = plots.holdings(federation, plot)
        print(f"picture: {picture}", file=sys.stderr if as_json else sys.stdout)


@app.command(rich_help_panel="Data")
@takes(
    options.NetOption,
    options.ClientOptions,
    options.TrainingOptions,
    options.SeedOption,
    options.PictureOptions,
    options.TrustOption,
)
def inspect(
    run: Annotated[
        Path | None,
        typer.Argument(
            help="The folder of a finished run; without it, --data.", show_default=False
        ),
    ] = None,
    plot: Path | None = None,
    as_json: bool = False,
    trust: bool = False,
    **settings: Any,
) -> None:
    """What a federation suffers from, and what to try first.

    Some clients are trained for one local round of FedAvg, from the initial model or from the
    run's. What to try goes by rules, each backed by a study that is named. For
    example: fedmap inspect --data fashion-mini --clients 20 --plot inspect.png"""
    from fedmap.cli import diagnose

    diagnosis = diagnose.inspected(run, trust, settings)
    diagnose.show(diagnosis, as_json)
    if plot:
        picture = diagnosis.save(plot)
        print(f"picture: {picture}", file=sys.stderr if as_json else sys.stdout)


@app.command(rich_help_panel="What there is")
def methods(
    name: Annotated[str | None, typer.Argument(help="Show this one with its parameters.")] = None,
) -> None:
    """The methods, with their parameters, defaults and ranges."""
    from fedmap.cli import lists

    lists.methods(name)


@app.command(rich_help_panel="What there is")
def nets() -> None:
    """The networks, with their sizes."""
    from fedmap.cli import lists

    lists.nets()


@app.command(rich_help_panel="What there is")
def datasets() -> None:
    """The datasets, with the paper's settings for each."""
    from fedmap.cli import lists

    lists.datasets()


@app.command(rich_help_panel="What there is")
def partitions() -> None:
    """The ways to divide samples among clients, with their parameters."""
    from fedmap.cli import lists

    lists.partitions()


@app.command(rich_help_panel="What there is")
def doctor() -> None:
    """What this machine has for fedmap: versions, cores, devices, kernels, data, extras, disk."""
    from fedmap.cli.doctor import findings

    for name, found in findings():
        print(f"{name:16} {found}")


@app.callback(invoke_without_command=True)
def version(
    version: Annotated[bool, typer.Option("--version", help="The version.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib.metadata import version as of

        print(f"fedmap {of('fedmap')}")
        raise typer.Exit


def main() -> None:
    """What the shell calls: a sentence and exit code 1 for what a person can put right, and what a
    shell expects where a signal ends it."""
    try:
        with on_signals(ending_handlers()):
            app()
    except FedmapError as wrong:
        say(f"fedmap: {wrong}")
        sys.exit(1)
    except OSError as wrong:  # a name that is too long, a folder that may not be read
        what = f"{wrong.filename}: " if wrong.filename else ""
        say(f"fedmap: {what}{wrong.strerror or wrong}")
        sys.exit(1)
    except Stopped as stopped:
        say("fedmap: stopped")
        sys.exit(stopped.code)
