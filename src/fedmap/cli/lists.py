"""What there is to choose from, printed: methods, nets, datasets, partitions, studies."""

import inspect
import sys
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fedmap.data import DATASETS
from fedmap.data.registry import FORMATS
from fedmap.methods import METHODS, find_method
from fedmap.nets import NETS, line, size
from fedmap.paper import STUDIES
from fedmap.paper.groups import GROUPS
from fedmap.params import allowed
from fedmap.partitions import PARTITIONS


def console() -> Console:
    """As wide as the terminal; wide enough for whole lines where there is none."""
    return Console(width=None if sys.stdout.isatty() else 160)


def table(*columns: str) -> Table:
    """A table without lines, under these heads."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        grid.add_column(column, overflow="fold")
    return grid


def params_table(params: type[BaseModel]) -> Table:
    """Parameters with their defaults and ranges."""
    grid = table("parameter", "default", "allowed", "what it is")
    for name, field in params.model_fields.items():
        default = "needed" if field.is_required() else str(field.default)
        grid.add_row(name, default, allowed(field), field.description or "")
    return grid


def methods(name: str | None) -> None:
    """All methods, or one with its parameters."""
    screen = console()
    if name is None:
        grid = table("method", "what it is", "parameters")
        for key, method in sorted(METHODS.items()):
            defaults = {name: field.default for name, field in method.Params.model_fields.items()}
            grid.add_row(key, method.line(), pairs(defaults))
        screen.print(grid)
        screen.print("\nfedmap methods NAME shows one with its parameters.")
        return
    method = find_method(name)
    text = escape(inspect.getdoc(method) or "")
    screen.print(f"[bold]{method.__name__}[/bold]\n{text}", highlight=False)
    if method.Params.model_fields:
        screen.print()
        screen.print(params_table(method.Params))
    for preset, chosen in method.presets.items():
        screen.print(f"\n-p preset={preset}: {pairs(chosen)}", highlight=False)
    if name in GROUPS:
        tried = "; ".join(pairs(group) for group in GROUPS[name])
        screen.print(f"\nthe paper tries: {tried}", highlight=False)


def pairs(values: dict[str, Any]) -> str:
    """Names with their values."""
    return ", ".join(f"{name}={value}" for name, value in values.items())


def nets() -> None:
    """All networks."""
    grid = table("net", "parameters", "what it is")
    for name in sorted(NETS):
        count = size(name, (1, 32, 32), 10)
        grid.add_row(name, "-" if count is None else f"{count:,}", line(name))
    console().print(grid)
    print("\nParameters are for 10 classes of 1x32x32 images.")


def datasets() -> None:
    """All datasets, with the settings of the paper for each."""
    numbers = ["clients", "rounds", "fraction", "epochs", "batch", "lr"]
    grid = table("dataset", "what it is", "net", *numbers)
    for name, source in DATASETS.items():
        cells = [f"{getattr(source.defaults, number):g}" for number in numbers]
        grid.add_row(name, escape(source.line), source.defaults.net, *cells)
    for name, reader in FORMATS.items():
        grid.add_row(f"{name}:PATH", escape(reader.line))
    console().print(grid)


def partitions() -> None:
    """All partitions, with their parameters."""
    screen = console()
    for name, partition in sorted(PARTITIONS.items()):
        screen.print(f"[bold]{name}[/bold]  {partition.line}", highlight=False)
        if partition.params.model_fields:
            screen.print(params_table(partition.params))
        screen.print()


def studies() -> None:
    """All studies, with what can be chosen of each."""
    grid = table("study", "what it shows", "paper", "columns", "methods")
    for name, study in STUDIES.items():
        columns, methods = "; ".join(study.columns), ", ".join(study.methods)
        grid.add_row(name, study.line, study.paper, columns, methods)
    console().print(grid)
