"""The options of the commands. Their Python names are the names of the settings, so that a command
hands on what was given as it is. Options that several commands share are bundled in classes."""

import inspect
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from rich.markup import escape

from fedmap.cli.parsing import listed, values

WHAT, CLIENTS, TRAINING, HOW = "What to run", "Data and clients", "Training", "How to run it"
GUARD = "Robust and private"
Command = Callable[..., None]
READ: dict[str, Callable[[Any], Any]] = {  # from the text of an option to its setting
    "params": partial(values, flag="-p"),
    "partition_params": partial(values, flag="--partition-param"),
    "categories": partial(listed, flag="--categories"),
}


def option(
    flag: str, help: str, panel: str, short: str | None = None, metavar: str | None = None
) -> Any:
    """An option whose help names the default itself, where it has one."""
    names = [short, flag] if short else [flag]
    return typer.Option(
        *names, help=escape(help), rich_help_panel=panel, metavar=metavar, show_default=False
    )


def takes(*bundles: type) -> Callable[[Command], Command]:
    """Add the options of some bundles to a command, after its own arguments.

    The command gets those that it names itself as they are. Of the others it gets only those that
    were given, pairs of NAME=VALUE as a dictionary: settings, ready to be checked."""
    shared = {
        name: inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(bundle, name), annotation=hint
        )
        for bundle in bundles
        for name, hint in get_type_hints(bundle, include_extras=True).items()
    }

    def decorate(command: Command) -> Command:
        own = inspect.signature(command).parameters

        @wraps(command)
        def with_options(**options: Any) -> None:
            given = {
                name: READ[name](value) if value and name in READ else value
                for name, value in options.items()
                if name in own or value is not None
            }
            command(**given)

        first = [
            parameter
            for name, parameter in own.items()
            if name not in shared and parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        signature = inspect.Signature([*first, *shared.values()])
        with_options.__signature__ = signature  # type: ignore[attr-defined]  # what Typer reads
        return with_options

    return decorate


Seeds = Annotated[str, option("--seeds", "Seeds to run, such as 0,1,2 or 0-2 (0).", TRAINING)]
DataDir = Annotated[str | None, option("--data-dir", "Folder of the dataset's files.", CLIENTS)]
Workers = Annotated[
    int | None,
    option(
        "--workers",
        "Processes (one for each core, or for each GPU); the result is the same for any number.",
        HOW,
    ),
]
Engine = Annotated[
    str | None,
    option("--engine", "What runs the clients: local, fork, spawn, ray or auto (auto).", HOW),
]
Device = Annotated[
    str | None,
    option("--device", "Where models are trained: cpu, cuda, cuda:1, mps or auto (cpu).", HOW),
]
RayAddress = Annotated[
    str | None,
    option(
        "--ray-address",
        "A Ray cluster, e.g. 10.0.0.1:6379 or auto; all its cores are used (a local Ray, with "
        "--workers cores).",
        HOW,
    ),
]
ClientTimeout = Annotated[
    float | None,
    option(
        "--client-timeout", "Seconds that a client may take, else the run ends (no limit).", HOW
    ),
]
Track = Annotated[
    list[str] | None,
    option(
        "--track",
        "Follow runs with tensorboard, mlflow or wandb too; can be repeated.",
        HOW,
        metavar="NAME",
    ),
]
Out = Annotated[Path | None, option("--out", "Folder for what comes out (below runs/).", HOW)]
Quiet = Annotated[bool, option("--quiet", "No progress.", HOW)]
Json = Annotated[bool, option("--json", "JSON on standard output.", HOW)]
Trust = Annotated[
    bool, option("--trust", "Run the Python files that a run's folder or a model names.", HOW)
]


Params = Annotated[
    list[str] | None,
    option(
        "--param",
        "A parameter of the methods that have it; can be repeated.",
        WHAT,
        "-p",
        "NAME=VALUE",
    ),
]


class MethodOptions:
    """A method with its parameters."""

    method: Annotated[
        str | None,
        option("--method", "The method, see fedmap methods, or FILE.py:CLASS (map).", WHAT),
    ] = None
    params: Annotated[
        list[str] | None,
        option("--param", "A parameter of the method; can be repeated.", WHAT, "-p", "NAME=VALUE"),
    ] = None


class MethodsOption:
    """Methods to compare."""

    params: Params = None

    methods: Annotated[
        str,
        option(
            "--methods", "Methods to compare, with commas (local,fedavg,fedrs,fedphp,map).", WHAT
        ),
    ] = "local,fedavg,fedrs,fedphp,map"


class GridOption:
    """Values to try."""

    grid: Annotated[
        list[str] | None,
        option(
            "--grid",
            "Values to try of a parameter of the method, or of a setting such as lr; with --trials "
            "also a range, LOW..HIGH or LOW..HIGH:log; can be repeated.",
            WHAT,
            "-g",
            "NAME=VALUE,VALUE",
        ),
    ] = None
    groups: Annotated[
        bool, option("--groups", "Try the groups of the method's parameters in the paper.", WHAT)
    ] = False
    trials: Annotated[
        int | None,
        option(
            "--trials",
            "Search: try so many combinations, chosen by Optuna on held-out samples (the whole "
            "grid).",
            WHAT,
        ),
    ] = None
    prune: Annotated[
        str | None,
        option(
            "--prune",
            "Which runs of a search are stopped early: median, hyperband or none (median).",
            WHAT,
        ),
    ] = None


class NetOption:
    """The network."""

    net: Annotated[
        str | None,
        option("--net", "The network, see fedmap nets, or FILE.py:CLASS.", WHAT),
    ] = None


class ClientOptions:
    """The data, and who holds it."""

    data: Annotated[
        str | None,
        option(
            "--data",
            "The dataset, see fedmap datasets; own data as FORMAT:PATH, or FILE.py:NAME "
            "(fashion-mini).",
            CLIENTS,
        ),
    ] = None
    data_dir: DataDir = None
    samples: Annotated[
        int | None,
        option(
            "--samples",
            "Training samples to use, and the same share of the test set (all).",
            CLIENTS,
        ),
    ] = None
    size: Annotated[
        int | None, option("--size", "Pixels that own images are scaled to, N by N (32).", CLIENTS)
    ] = None
    label_column: Annotated[
        str | None, option("--label", "Column of the labels in own tables (y).", CLIENTS)
    ] = None
    client_column: Annotated[
        str | None,
        option("--client-column", "Column that names the client, in one table of all.", CLIENTS),
    ] = None
    categories: Annotated[
        str | None,
        option(
            "--categories",
            "Columns of text, with commas; each of their values becomes a feature.",
            CLIENTS,
        ),
    ] = None
    scale: Annotated[
        str | None,
        option(
            "--scale",
            "Of own vectors: standard (features get mean 0, deviation 1) or none (standard).",
            CLIENTS,
        ),
    ] = None
    clients: Annotated[int | None, option("--clients", "Clients in the federation.", CLIENTS)] = (
        None
    )
    partition: Annotated[
        str | None,
        option(
            "--partition",
            "How samples are divided among the clients, see fedmap partitions, or "
            "FILE.py:NAME (natural where the data has owners, else incomplete).",
            CLIENTS,
        ),
    ] = None
    partition_params: Annotated[
        list[str] | None,
        option(
            "--partition-param",
            "A parameter of the partition; can be repeated.",
            CLIENTS,
            metavar="NAME=VALUE",
        ),
    ] = None
    partition_seed: Annotated[
        int | None,
        option("--partition-seed", "Seed of the partition (the same as --seed).", CLIENTS),
    ] = None


class TrainingOptions:
    """How every client trains."""

    rounds: Annotated[int | None, option("--rounds", "Communication rounds T.", TRAINING)] = None
    fraction: Annotated[
        float | None, option("--fraction", "Share Q of the clients in each round.", TRAINING)
    ] = None
    epochs: Annotated[
        float | None, option("--epochs", "Local epochs E; at least five steps.", TRAINING)
    ] = None
    batch: Annotated[int | None, option("--batch", "Batch size.", TRAINING)] = None
    lr: Annotated[float | None, option("--lr", "Learning rate of local SGD.", TRAINING)] = None
    momentum: Annotated[
        float | None, option("--momentum", "Momentum of local SGD (0.9).", TRAINING)
    ] = None
    weight_decay: Annotated[
        float | None, option("--weight-decay", "Weight decay of local SGD (1e-5).", TRAINING)
    ] = None
    clip: Annotated[
        float | None,
        option("--clip", "Longest gradient of a local step (no limit; Scaffold 10).", TRAINING),
    ] = None
    warmup_rounds: Annotated[
        int | None,
        option(
            "--warmup-rounds",
            "Rounds over which the learning rate rises to its value (0).",
            TRAINING,
        ),
    ] = None
    server_weights: Annotated[
        str | None,
        option(
            "--server-weights",
            "How the server weighs uploads: uniform or samples (uniform).",
            TRAINING,
        ),
    ] = None
    validation: Annotated[
        float | None,
        option(
            "--validation",
            "Share of each client's training samples that is kept for choosing the best round (0).",
            TRAINING,
        ),
    ] = None
    patience: Annotated[
        int | None,
        option(
            "--patience",
            "With --validation: end after this many rounds without a better one.",
            TRAINING,
        ),
    ] = None


class GuardOptions:
    """What protects the server from clients, and clients from who sees the models."""

    aggregate: Annotated[
        str | None,
        option(
            "--aggregate",
            "The server's average: mean, median, trimmed, krum, multi-krum or clipped (mean).",
            GUARD,
        ),
    ] = None
    assumed_attackers: Annotated[
        float | None,
        option(
            "--assumed-attackers",
            "Share of bad uploads that trimmed, krum and multi-krum reckon with (0.3).",
            GUARD,
        ),
    ] = None
    dp_clip: Annotated[
        float | None,
        option("--dp-clip", "Longest change of the model that a client sends (any).", GUARD),
    ] = None
    dp_noise: Annotated[
        float | None,
        option("--dp-noise", "Noise on a round's sum, in units of --dp-clip (none).", GUARD),
    ] = None
    dp_delta: Annotated[
        float | None, option("--dp-delta", "Delta of the recorded epsilon (1e-5).", GUARD)
    ] = None


class AttackOptions:
    """Clients that do harm, in a simulation."""

    attack: Annotated[
        str | None,
        option("--attack", "What attackers do: none, labels, signs or noise (none).", GUARD),
    ] = None
    attackers: Annotated[
        float | None, option("--attackers", "Share of all clients that attack (0).", GUARD)
    ] = None


class SeedOption:
    """One seed."""

    seed: Annotated[
        int | None, option("--seed", "Seed of everything that is drawn (0).", TRAINING)
    ] = None


class SweepSeedsOption:
    """One or more seeds, which a file may name too."""

    seeds: Annotated[
        str | None, option("--seeds", "Seeds to run, such as 0,1,2 or 0-2 (0).", TRAINING)
    ] = None


class SeedsOption:
    """One or more seeds."""

    seeds: Seeds = "0"


class RunOptions:
    """How runs are carried out, and what is shown of them."""

    device: Device = None
    workers: Workers = None
    engine: Engine = None
    ray_address: RayAddress = None
    kernels: Annotated[
        str | None,
        option(
            "--kernels",
            "Who does convolutions and sparse products: auto, native or torch (auto).",
            HOW,
        ),
    ] = None
    client_timeout: ClientTimeout = None
    on_bad_upload: Annotated[
        str | None,
        option(
            "--on-bad-upload",
            "What an upload that is not finite or far too long does: stop the run, or skip it "
            "(stop).",
            HOW,
        ),
    ] = None
    norm_bound: Annotated[
        float | None,
        option("--norm-bound", "How many times as far as usual an upload may move (100).", HOW),
    ] = None
    min_clients: Annotated[
        int | None, option("--min-clients", "Uploads that a round needs to count (1).", HOW)
    ] = None
    keep_states: Annotated[
        bool | None,
        option(
            "--keep-states",
            "Keep the clients' states of a finished run, so that it can go on for more rounds.",
            HOW,
        ),
    ] = None
    track: Track = None
    out: Out = None
    quiet: Quiet = False
    as_json: Json = False


class TrustOption:
    """Whose code is run."""

    trust: Trust = False


class DryRunOption:
    """Look before the leap."""

    dry_run: Annotated[
        bool, option("--dry-run", "Say what would be done and what it would cost, and stop.", HOW)
    ] = False


class PlanOption:
    """Look before the leap."""

    plan: Annotated[
        bool, option("--plan", "Show what would be done and what is done already, and stop.", HOW)
    ] = False


class PictureOptions:
    """What is shown of a partition."""

    plot: Annotated[
        Path | None, option("--plot", "Save the picture here (.png, .svg or .pdf).", HOW)
    ] = None
    as_json: Json = False


class StudyOptions:
    """Which part of a study, how large, and what to do with it."""

    scale: Annotated[
        str,
        option(
            "--scale",
            "smoke (seconds), small (about an hour) or paper (as printed) (small).",
            WHAT,
        ),
    ] = "small"
    columns: Annotated[
        str | None, option("--columns", "Only these columns, with ; between several.", WHAT)
    ] = None
    methods: Annotated[
        str | None,
        option("--methods", "Only these methods, with commas; also map[alpha=0.5].", WHAT),
    ] = None
    defaults: Annotated[
        bool,
        option(
            "--defaults", "Each method's default parameters, not the paper's three groups.", WHAT
        ),
    ] = False
    params: Params = None
    clip: Annotated[
        float | None,
        option("--clip", "Longest gradient of a local step (no limit; the authors' 100).", WHAT),
    ] = None
    seeds: Seeds = "0"
    data_dir: DataDir = None
    workers: Workers = None
    engine: Engine = None
    ray_address: RayAddress = None
    out: Annotated[Path, option("--out", "Folder for tables and figures (studies).", HOW)] = Path(
        "studies"
    )
    runs: Annotated[
        Path, option("--runs", "Folder of the runs, shared by all studies (runs).", HOW)
    ] = Path("runs")
    known: Annotated[
        Path | None,
        option(
            "--known", "Folder of kept tables (.csv); what has rows there is not run again.", HOW
        ),
    ] = None
    plan: Annotated[bool, option("--plan", "Show what would be done, and stop.", HOW)] = False
    report: Annotated[
        bool,
        option("--report", "Do no work; write the tables and figures of what is done.", HOW),
    ] = False
    quiet: Quiet = False
