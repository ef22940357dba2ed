"""What there is to choose from, printed: methods, nets, datasets, partitions."""

import inspect
import sys

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmap.data import DATASETS
from fedmap.data.registry import FORMATS
from fedmap.methods import METHODS, find_method
from fedmap.nets import NETS, line, size
from fedmap.paper import STUDIES
from fedmap.params import allowed
from fedmap.partitions import PARTITIONS


def console() -> Console:
    """As wide as the terminal; wide enough for whole lines where there is none."""
    return Console(width=None if sys.stdout.isatty() else 160)


def table(*columns: str) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    return grid


def params_table(params: type[BaseModel]) -> Table:
    grid = table("parameter", "default", "allowed", "what it is")
    for name, field in params.model_fields.items():
        grid.add_row(name, str(field.default), allowed(field), field.description or "")
    return grid


def methods(name: str | None) -> None:
    screen = console()
    if name is None:
        grid = table("method", "what it is", "parameters")
        for key, method in sorted(METHODS.items()):
            grid.add_row(
                key,
                method.line(),
                ", ".join(f"{n}={f.default}" for n, f in method.Params.model_fields.items()),
            )
        screen.print(grid)
        screen.print("\nfedmap methods NAME shows one with its parameters.")
        return
    method = find_method(name)
    screen.print(
        f"[bold]{method.__name__}[/bold]\n{escape(inspect.getdoc(method) or '')}", highlight=False
    )
    if method.Params.model_fields:
        screen.print()
        screen.print(params_table(method.Params))
    for preset, chosen in method.presets.items():
        screen.print(
            f"\n-p preset={preset}: " + ", ".join(f"{n}={v}" for n, v in chosen.items()),
            highlight=False,
        )
    if method.groups:
        screen.print(
            "\nthe paper tries: "
            + "; ".join(", ".join(f"{n}={v}" for n, v in group.items()) for group in method.groups),
            highlight=False,
        )


def nets() -> None:
    grid = table("net", "parameters", "what it is")
    for name in sorted(NETS):
        count = size(name, (1, 32, 32), 10)
        grid.add_row(name, "-" if count is None else f"{count:,}", line(name))
    console().print(grid)
    print("\nParameters are for 10 classes of 1x32x32 images.")


def datasets() -> None:
    grid = table(
        "dataset", "what it is", "net", "clients", "rounds", "fraction", "epochs", "batch", "lr"
    )
    for name, source in DATASETS.items():
        d = source.defaults
        grid.add_row(
            name,
            escape(source.line),
            d.net,
            *(f"{v:g}" for v in (d.clients, d.rounds, d.fraction, d.epochs, d.batch, d.lr)),
        )
    for name, reader in FORMATS.items():
        grid.add_row(f"{name}:PATH", escape(reader.line))
    console().print(grid)


def partitions() -> None:
    screen = console()
    for name, partition in sorted(PARTITIONS.items()):
        screen.print(f"[bold]{name}[/bold]  {partition.line}", highlight=False)
        if partition.params.model_fields:
            screen.print(params_table(partition.params))
        screen.print()


def studies() -> None:
    grid = table("study", "what it shows", "paper", "columns", "methods")
    for name, study in STUDIES.items():
        grid.add_row(
            name, study.line, study.paper, "; ".join(study.columns), ", ".join(study.methods)
        )
    console().print(grid)
