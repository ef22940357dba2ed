"""`fedmap data`: what data is there, whether it is whole, and how to get it."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Show, check and download datasets.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="a dataset of `fedmap data list`")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="folder with datasets, searched before FEDMAP_DATA and the cache"
    ),
]


@app.command("list")
def list_(data_dir: DataDir = None) -> None:
    """Show every dataset and where it is."""
    from rich.console import Console
    from rich.table import Table

    from fedmap.data.locate import places
    from fedmap.data.verify import listed

    table = Table("dataset", "where", "what it is", box=None, header_style="bold")
    for row in listed(data_dir):
        where = row.place or f"not there: fedmap data get {row.name}"
        table.add_row(row.name, f"{row.folder} ({where})" if row.folder else where, row.line)
    console = Console()
    console.print(table)
    searched = ", ".join(f"{place} ({what})" for place, what in places(data_dir))
    console.print(f"searched: {searched}", soft_wrap=True)


@app.command()
def check(name: Name, data_dir: DataDir = None) -> None:
    """Verify the counts and the published checksums of a dataset's official files."""
    from fedmap.data.verify import check as run
    from fedmap.errors import FedmapError

    report = run(name, data_dir)
    typer.echo(f"{report.name} in {report.folder}")
    for fact in report.facts:
        typer.echo(f"  {fact}")
    if report.wrong:
        raise FedmapError(f"{name}: {report.verdict}. Remove {report.folder} and get the set again")
    typer.echo(f"{name}: {report.verdict}")


@app.command()
def get(name: Name, data_dir: DataDir = None) -> None:
    """Download a dataset's official archive, check it and unpack it. A download that was
    interrupted goes on where it stopped."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from fedmap.data.download import get as run

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    ) as bars:
        tasks = {}

        def show(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done)

        folder = run(name, data_dir, show)
    typer.echo(f"{name} is in {folder}; `fedmap data check {name}` verifies it")
