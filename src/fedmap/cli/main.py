"""The command line. Every command is thin: it reads options, calls the library and shows what comes
back."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmap.cli import data
from fedmap.errors import FedmapError

# torch and the rest of fedmap are imported inside the commands: `fedmap --help` must not wait for
# them.
if TYPE_CHECKING:
    from fedmap.simulate import Result, Settings

app = typer.Typer(
    name="fedmap",
    help="Federated learning for clients that do not see every class: one global model that knows all of them, and a personal "
    "model for each client.\n\nStart with: fedmap demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data", rich_help_panel="Data")

WHAT, CLIENTS, TRAINING, HOW = "What to run", "Data and clients", "Training", "How to run it"


def option(
    flag: str,
    help: str,
    panel: str | None = None,
    short: str | None = None,
    metavar: str | None = None,
) -> Any:
    return typer.Option(
        *([short] if short else []),
        flag,
        help=help,
        rich_help_panel=panel,
        metavar=metavar,
        show_default=False,
    )


# The options' Python names are the settings' names, so that a command hands on what was given as it
# is.
Method = Annotated[
    str | None, option("--method", "The method, see [b]fedmap methods[/b] (map).", WHAT)
]
Methods = Annotated[
    str, option("--methods", "Methods to compare, with commas (fedavg,fedrs,fedphp,map).", WHAT)
]
Params = Annotated[
    list[str] | None,
    option("--param", "A parameter of the method; can be repeated.", WHAT, "-p", "NAME=VALUE"),
]
Net = Annotated[str | None, option("--net", "The network, see [b]fedmap nets[/b].", WHAT)]
Data = Annotated[
    str | None,
    option(
        "--data",
        "The dataset, see [b]fedmap datasets[/b]; own data as FORMAT:PATH (fashion-mini).",
        CLIENTS,
    ),
]
DataDir = Annotated[str | None, option("--data-dir", "Folder of the dataset's files.", CLIENTS)]
Samples = Annotated[
    int | None,
    option(
        "--samples", "Training samples to use, and the same share of the test set (all).", CLIENTS
    ),
]
Clients = Annotated[int | None, option("--clients", "Clients in the federation.", CLIENTS)]
Kind = Annotated[
    str | None,
    option(
        "--partition",
        "How samples are shared out, see [b]fedmap partitions[/b] (natural where the data has "
        "owners, else incomplete).",
        CLIENTS,
    ),
]
KindParams = Annotated[
    list[str] | None,
    option(
        "--partition-param",
        "A parameter of the partition; can be repeated.",
        CLIENTS,
        metavar="NAME=VALUE",
    ),
]
Rounds = Annotated[int | None, option("--rounds", "Communication rounds T.", TRAINING)]
Fraction = Annotated[
    float | None, option("--fraction", "Share Q of the clients in each round.", TRAINING)
]
Epochs = Annotated[float | None, option("--epochs", "Local epochs E.", TRAINING)]
Batch = Annotated[int | None, option("--batch", "Batch size.", TRAINING)]
Lr = Annotated[float | None, option("--lr", "Learning rate of local SGD.", TRAINING)]
Momentum = Annotated[float | None, option("--momentum", "Momentum of local SGD (0.9).", TRAINING)]
Decay = Annotated[
    float | None, option("--weight-decay", "Weight decay of local SGD (1e-5).", TRAINING)
]
Clip = Annotated[
    float | None, option("--clip", "Longest gradient of a local step (no limit).", TRAINING)
]
Warmup = Annotated[
    int | None,
    option(
        "--warmup-rounds", "Rounds over which the learning rate rises to its value (0).", TRAINING
    ),
]
Weights = Annotated[
    str | None,
    option(
        "--server-weights", "How the server weighs uploads: uniform or samples (uniform).", TRAINING
    ),
]
Seed = Annotated[int | None, option("--seed", "Seed of everything that is drawn (0).", TRAINING)]
KindSeed = Annotated[
    int | None, option("--partition-seed", "Seed of the partition (the same as --seed).", CLIENTS)
]
Seeds = Annotated[str, option("--seeds", "Seeds to run, with commas (0).", TRAINING)]
Workers = Annotated[
    int | None,
    option("--workers", "Processes (all cores); the result is the same for any number.", HOW),
]
Kernels = Annotated[
    str | None,
    option(
        "--kernels", "Who does convolutions and sparse products: auto, native or torch (auto).", HOW
    ),
]
Out = Annotated[Path | None, option("--out", "Folder for what comes out (below runs/).", HOW)]
Quiet = Annotated[bool, option("--quiet", "No progress.", HOW)]
Json = Annotated[bool, option("--json", "JSON on standard output.", HOW)]


def given(context: typer.Context) -> dict[str, Any]:
    """The settings among the options of a command that were given."""
    from fedmap.simulate import Settings

    chosen = {
        name: value
        for name, value in context.params.items()
        if name in Settings.model_fields and value is not None
    }
    for name, flag in (("params", "-p"), ("partition_params", "--partition-param")):
        if name in chosen:
            chosen[name] = values(chosen[name], flag)
    return chosen


def values(pairs: list[str], flag: str) -> dict[str, Any]:
    """NAME=VALUE pairs; numbers, true and false are taken as such, all else as text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise FedmapError(f"{flag} {pair!r} is not of the form NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def listed(text: str, flag: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise FedmapError(f"{flag} is empty; give at least one, with commas between several")
    return list(dict.fromkeys(names))


def seed_list(text: str) -> list[int]:
    numbers = listed(text, "--seeds")
    if not all(number.isdigit() for number in numbers):
        raise FedmapError(f"--seeds {text!r} is not a list of whole numbers such as 0,1,2")
    return [int(number) for number in numbers]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def stoppable(folder: Path, resume: str) -> Iterator[None]:
    """Ctrl-C ends a run in good order and says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        print(
            f"\nstopped; whole rounds are kept in {folder}. Go on with: {resume}", file=sys.stderr
        )
        raise typer.Exit(130) from None


def one_run(made: "Settings", out: Path | None, resume: bool, quiet: bool, as_json: bool) -> None:
    from fedmap.cli import show
    from fedmap.simulate import Run

    federation = made.federation()
    made = made.resolved(federation)
    folder = out or Path("runs") / made.name
    with (
        stoppable(folder, f"fedmap resume {folder}"),
        show.Display(quiet or as_json).shown() as display,
    ):
        result = Run(made, federation, folder).go(resume, display.a_run(made.label, made.rounds))
    show.results({made.label: [result]}, as_json)
    if not as_json:
        print(f"\nrun folder: {folder}")


@app.command(rich_help_panel="Train")
def run(
    context: typer.Context,
    file: Annotated[Path | None, typer.Argument(help="Settings in TOML, e.g. a run's run.toml; options win.", show_default=False)] = None,
    method: Method = None, params: Params = None, net: Net = None,
    data: Data = None, data_dir: DataDir = None, samples: Samples = None, clients: Clients = None, partition: Kind = None,
    partition_params: KindParams = None, partition_seed: KindSeed = None,
    rounds: Rounds = None, fraction: Fraction = None, epochs: Epochs = None, batch: Batch = None, lr: Lr = None,
    momentum: Momentum = None, weight_decay: Decay = None, clip: Clip = None, warmup_rounds: Warmup = None,
    server_weights: Weights = None, seed: Seed = None,
    workers: Workers = None, kernels: Kernels = None, out: Out = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Train with one method on one federation.

    What is not given is the paper's value for the dataset, and the method's own default. For
    example: fedmap run --method map --data fashion-mini --net lenet -p alpha=0.5"""
    from fedmap.simulate import Settings, read_toml

    base, chosen = read_toml(file) if file else {}, given(context)
    if method in (None, base.get("method")):  # another method has other parameters
        chosen["params"] = base.get("params", {}) | chosen.get("params", {})
    made = Settings.of({"workers": cores()} | base | {"params": {}} | chosen)
    one_run(made, out, False, quiet, as_json)


@app.command(rich_help_panel="Train")
def resume(
    folder: Annotated[Path, typer.Argument(help="The folder of a run that was stopped.")],
    workers: Workers = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Go on with a run that was stopped, from its last whole round; the result is the same as if it
    had not been."""
    from fedmap.simulate import Settings, read_toml

    if not (folder / "run.toml").exists():
        raise FedmapError(f"{folder} is not a run folder: it has no run.toml")
    base = read_toml(folder / "run.toml")
    if base.get("data") == "arrays":
        raise FedmapError(
            f"the run in {folder} is on arrays given in Python; go on there with fedmap.run(..., "
            f"out={str(folder)!r}, resume=True)"
        )
    one_run(
        Settings.of(base | ({"workers": workers} if workers else {})), folder, True, quiet, as_json
    )


def comparison(
    base: dict[str, Any],
    methods: list[str],
    seeds: list[int],
    folder: Path,
    quiet: bool,
    as_json: bool,
) -> None:
    """Each method with each seed, on the same federation for a seed; then the table and the
    pictures."""
    from fedmap.cli import show
    from fedmap.report import plots
    from fedmap.simulate import Run, Settings

    all_settings = {
        method: [Settings.of(base | {"method": method, "seed": seed}) for seed in seeds]
        for method in methods
    }
    results: dict[str, list[Result]] = {method: [] for method in methods}
    first = None
    with stoppable(folder, "the same command"), show.Display(quiet or as_json).shown() as display:
        for i, seed in enumerate(seeds):
            federation = all_settings[methods[0]][i].federation()
            first = first or federation
            for method in methods:
                made = all_settings[method][i].resolved(federation)
                on_round = display.a_run(
                    made.label + (f" #{seed}" if len(seeds) > 1 else ""), made.rounds
                )
                results[method].append(Run(made, federation, folder / made.name).go(True, on_round))
    results = {all_settings[method][0].label: runs for method, runs in results.items()}
    show.results(results, as_json)
    assert first is not None
    pictures = [
        plots.curves(results, folder / "curves.png"),
        plots.holdings(first, folder / "partition.png"),
    ]
    if not as_json:
        print(
            "\n"
            + "\n".join(
                f"{what}: {path}"
                for what, path in zip(("curves", "partition"), pictures, strict=True)
            )
        )
        print(f"run folders: {folder}")


@app.command(rich_help_panel="Train")
def compare(
    context: typer.Context,
    methods: Methods = "fedavg,fedrs,fedphp,map", seeds: Seeds = "0", net: Net = None,
    data: Data = None, data_dir: DataDir = None, samples: Samples = None, clients: Clients = None, partition: Kind = None,
    partition_params: KindParams = None, partition_seed: KindSeed = None,
    rounds: Rounds = None, fraction: Fraction = None, epochs: Epochs = None, batch: Batch = None, lr: Lr = None,
    momentum: Momentum = None, weight_decay: Decay = None, clip: Clip = None, warmup_rounds: Warmup = None,
    server_weights: Weights = None,
    workers: Workers = None, kernels: Kernels = None, out: Out = None, quiet: Quiet = False, as_json: Json = False,
) -> None:  # fmt: skip
    """Train with several methods on the same federation: one table, one plot.

    Stopped and started again, it skips what is done."""
    base = {"workers": cores()} | given(context)
    comparison(
        base,
        listed(methods, "--methods"),
        seed_list(seeds),
        out or Path("runs/compare"),
        quiet,
        as_json,
    )


@app.command(rich_help_panel="Train")
def demo(
    rounds: Annotated[int, typer.Option("--rounds", help="Communication rounds.")] = 20,
    workers: Workers = None, out: Out = None, quiet: Quiet = False,
) -> None:  # fmt: skip
    """See it work, in under two minutes: four methods on 20 clients that each miss some of
    Fashion-MNIST's classes."""
    base = {
        "data": "fashion-mini",
        "net": "lenet",
        "clients": 20,
        "rounds": rounds,
        "workers": workers or cores(),
    }
    comparison(
        base, ["fedavg", "fedrs", "fedphp", "map"], [0], out or Path("runs/demo"), quiet, False
    )


@app.command(rich_help_panel="The paper")
def study(
    name: Annotated[str | None, typer.Argument(help="The study; without it all are listed.", show_default=False)] = None,
    scale: Annotated[str, option("--scale", "smoke (seconds), small (about an hour) or paper (as printed) (small).", WHAT)] = "small",
    columns: Annotated[str | None, option("--columns", "Only these columns, with ; between several.", WHAT)] = None,
    methods: Annotated[str | None, option("--methods", "Only these methods, with commas.", WHAT)] = None,
    defaults: Annotated[bool, option("--defaults", "Each method's default parameters, not the paper's three groups.", WHAT)] = False,
    seeds: Seeds = "0", data_dir: DataDir = None, workers: Workers = None,
    out: Annotated[Path, option("--out", "Folder for tables and figures (studies).", HOW)] = Path("studies"),
    runs: Annotated[Path, option("--runs", "Folder of the runs, shared by all studies (runs).", HOW)] = Path("runs"),
    plan: Annotated[bool, option("--plan", "Show what would be done, and stop.", HOW)] = False,
    report: Annotated[bool, option("--report", "Do no work; write the tables and figures of what is done.", HOW)] = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Make a table or figure of the paper, beside the published numbers.

    It shows first what there is to do and how long it will take. Stopped and started again, it
    skips what is done."""
    from fedmap.cli import lists, studies

    if name is None:
        lists.studies()
        return
    chosen = {
        "columns": [part.strip() for part in columns.split(";") if part.strip()] if columns else [],
        "methods": listed(methods, "--methods") if methods else [],
        "seeds": seed_list(seeds),
        "defaults_only": defaults,
        "workers": workers or cores(),
        "data_dir": data_dir,
    }
    with stoppable(runs, "the same command"):
        studies.study(name, scale, chosen, out, runs, plan, report, quiet)


@app.command(rich_help_panel="Data")
def partition(
    context: typer.Context,
    data: Data = None, data_dir: DataDir = None, samples: Samples = None, clients: Clients = None, partition: Kind = None,
    partition_params: KindParams = None, partition_seed: KindSeed = None,
    seed: Seed = None, plot: Annotated[Path | None, option("--plot", "Save the picture here (.png, .svg or .pdf).", HOW)] = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Draw a partition: its statistics, and with --plot the client-by-class picture."""
    from fedmap.simulate import Settings

    made = Settings.of(given(context))
    federation = made.federation()
    sizes, held = federation.counts.sum(1).float(), federation.observed.sum(1).float()
    holders = federation.observed.sum(0)
    numbers = {
        "clients": len(federation),
        "training_samples_per_client": {
            "mean": float(sizes.mean()),
            "least": int(sizes.min()),
            "most": int(sizes.max()),
        },
        "observed_classes_per_client": {
            "mean": float(held.mean()),
            "least": int(held.min()),
            "most": int(held.max()),
        },
        "clients_per_class": {"least": int(holders.min()), "most": int(holders.max())},
        "global_test_samples": len(federation.test_y),
    }
    if as_json:
        print(json.dumps(numbers, indent=1))
    else:
        print(
            f"{federation.dataset.name}, partition {made.partition}, seed {made.seed}: "
            f"{federation.classes} classes"
        )
        for name, value in numbers.items():
            words = (
                ", ".join(f"{k} {v:g}" for k, v in value.items())
                if isinstance(value, dict)
                else f"{value}"
            )
            print(f"  {name.replace('_', ' ')}: {words}")
    if plot:
        from fedmap.report import plots

        print(
            f"picture: {plots.holdings(federation, plot)}",
            file=sys.stderr if as_json else sys.stdout,
        )


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
    """The ways to share samples out among clients, with their parameters."""
    from fedmap.cli import lists

    lists.partitions()


@app.callback(invoke_without_command=True)
def version(
    version: Annotated[bool, typer.Option("--version", help="The version.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib.metadata import version as of

        print(f"fedmap {of('fedmap')}")
        raise typer.Exit


def main() -> None:
    """What the shell calls: a sentence and exit code 1 for what a person can put right."""
    try:
        app()
    except FedmapError as wrong:
        print(f"fedmap: {wrong}", file=sys.stderr)
        sys.exit(1)
