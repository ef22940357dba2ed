"""`fedmap flower`: training across sites with Flower. The work is done in `fedmap.flower`."""

import sys
import time
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedmap.cli import options
from fedmap.cli.options import takes
from fedmap.cli.parsing import listed
from fedmap.errors import FedmapError
from fedmap.signals import Stopped

if TYPE_CHECKING:
    from fedmap.flower.demo import Site
    from fedmap.simulate.result import Result

app = typer.Typer(help="Train across real sites with Flower.", no_args_is_help=True)

SERVER = "At the server"
Sites = Annotated[
    str | None,
    typer.Option("--sites", help="Sites that get a key, with commas.", show_default=False),
]
Hosts = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        help="Name or address by which the sites reach the server; can be repeated. 127.0.0.1 "
        "and localhost are always there.",
        show_default=False,
    ),
]
AppFolder = Annotated[Path, typer.Argument(help="The folder to write.", show_default=False)]


class ServerOptions:
    """What the server is told."""

    out: Annotated[
        str | None,
        options.option("--out", "Absolute path of the run's folder (run in the folder).", SERVER),
    ] = None
    classes: Annotated[
        str | None,
        options.option("--classes", "All classes, with commas (those the sites have).", SERVER),
    ] = None
    test_data: Annotated[
        str | None,
        options.option(
            "--test-data",
            "The global test set: a dataset or FORMAT:PATH (the sites' own tests together).",
            SERVER,
        ),
    ] = None
    min_sites: Annotated[
        int | None,
        options.option("--min-sites", "Sites from which on a round counts (2).", SERVER),
    ] = None
    round_timeout: Annotated[
        float | None,
        options.option("--round-timeout", "Seconds that a site may take to answer (600).", SERVER),
    ] = None
    evaluate_every: Annotated[
        int | None,
        options.option(
            "--evaluate-every",
            "Rounds between two tests of the global model at the sites (1).",
            SERVER,
        ),
    ] = None
    norm_bound: Annotated[
        float | None,
        options.option(
            "--norm-bound",
            "How many times as far as usual an upload may move (100).",
            SERVER,
        ),
    ] = None


def flower_needed() -> None:
    """Say in one sentence how to get Flower, where it is not installed."""
    if find_spec("flwr") is None:
        raise FedmapError("Flower is not installed; get it with: pip install 'fedmap[flower]'")


@app.command()
def keys(
    folder: AppFolder,
    sites: Sites = None,
    host: Hosts = None,
    renew_server: Annotated[
        bool,
        typer.Option("--renew-server", help="Give the server a new key and certificate."),
    ] = False,
) -> None:
    """Make the keys of a federation: the server's certificate, and a key for each site.

    Used again on the same folder, it adds keys for new sites and keeps all others. For example:
    fedmap flower keys keys --sites oslo,bergen --host fl.example.org"""
    flower_needed()
    from rich.console import Console
    from rich.table import Table

    from fedmap.flower.keys import Keys

    names = listed(sites or "", "--sites") if sites or not renew_server else []
    made = Keys(folder)
    made.make(names, host or [], renew_server)
    table = Table("file", "what it is for", "where it goes", box=None, header_style="bold")
    for path, what, where in made.explained(names):
        table.add_row(str(path.relative_to(folder)), what, where)
    console = Console()
    console.print(f"in {folder}:", soft_wrap=True)
    console.print(table)


@app.command("app")
@takes(
    options.MethodOptions,
    options.NetOption,
    options.TrainingOptions,
    options.GuardOptions,
    options.SeedOption,
    ServerOptions,
)
def app_(folder: AppFolder, **given: Any) -> None:
    """Write the app folder of a run: its settings, and a page with all commands.

    The method must be installed at every site. For example: fedmap flower app xray --method map
    --net lenet --rounds 50"""
    flower_needed()
    from fedmap.flower.app_folder import write_app

    write_app(folder, given)
    typer.echo(f"{folder} is written; what to do with it is in {folder / 'README.md'}")


@app.command()
def demo(
    sites: Annotated[int, typer.Option("--sites", help="Sites, each a process.")] = 3,
    rounds: Annotated[int, typer.Option("--rounds", help="Communication rounds.")] = 3,
    method: Annotated[str, typer.Option("--method", help="The method.")] = "map",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for everything, a new one (below runs/).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """See a federation work, in about a minute: a server and sites on this machine, with keys and
    encryption; each site has images of some classes only."""
    flower_needed()
    from fedmap.flower.demo import run_demo

    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {line}", file=sys.stderr, flush=True)

    settings = {"method": method, "net": "lenet", "rounds": rounds, "fraction": 1.0}
    try:
        result, places = run_demo(out or unused(Path("runs/flower-demo")), sites, settings, say)
    except (KeyboardInterrupt, Stopped) as stopped:
        print("\nstopped; nothing is left running", file=sys.stderr)
        raise typer.Exit(getattr(stopped, "code", 130)) from None
    show_demo(result, places)


def unused(folder: Path) -> Path:
    """The folder, or with a number behind its name where it is taken."""
    names = (folder if k == 1 else folder.with_name(f"{folder.name}-{k}") for k in count(1))
    return next(name for name in names if not name.exists())


def show_demo(result: "Result", places: "list[Site]") -> None:
    """Both accuracies, and what each site has of it."""
    from rich.console import Console
    from rich.table import Table

    from fedmap.flower.demo import accuracy_by_site
    from fedmap.report.table import percent

    table = Table("site", "samples", "personal %", "classes it misses", box=None)
    accuracies = accuracy_by_site(result)
    for site in places:
        accuracy = percent([accuracies[site.name]])
        table.add_row(site.name, str(site.samples), accuracy, ", ".join(site.missing))
    print()
    Console().print(table)
    print(f"\nglobal accuracy: {percent([result.global_accuracy])} %, one model for all")
    print(f"personal accuracy: {percent(list(accuracies.values()))} %, each site's own model")
    print(f"run folder at the server: {result.folder}")
    for site in places:
        print(f"private files of {site.name}: {site.states}")
