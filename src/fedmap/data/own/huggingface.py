"""Hugging Face `datasets` objects, or anything else with columns by name, to a Dataset. The package
itself is not needed."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fedmap.data.dataset import Dataset
from fedmap.data.files import images
from fedmap.data.own.arrays import from_clients, grouped
from fedmap.data.own.columns import class_names, column, pair
from fedmap.errors import FedmapError


class Columns(Protocol):
    """Columns by name, as `datasets.Dataset`, a pandas frame or a dictionary of lists has them."""

    def __getitem__(self, column: str, /) -> Any: ...


def from_huggingface(
    data: Columns | Mapping[str, Columns],
    *,
    x: str | Sequence[str] = "image",
    y: str = "label",
    client: str | None = None,
    test: Columns | None = None,
    size: images.Size | None = None,
    name: str = "huggingface",
) -> Dataset:
    """A Dataset with an owner for each sample, from one table with a column `client`, or from one
    table for each client.

    `x` is a column of images, arrays or lists of numbers, or several columns of numbers; `y` is the
    column of labels, whose class names are kept if the table knows them. Images are scaled to
    `size` where it is given, and to 32 by 32 where they differ.
    """
    if client is not None:
        first: Any = data
        clients = grouped(pair(first, x, y, size, name), column(first, client, name))
    elif isinstance(data, Mapping):
        first = next(iter(data.values()), None)
        tables = {str(key): table for key, table in data.items()}
        clients = {key: pair(table, x, y, size, key) for key, table in tables.items()}
    else:
        raise FedmapError(
            f"dataset {name}: name the column of clients (client=...), "
            "or give a dictionary with one table for each client"
        )
    held_out = pair(test, x, y, size, "test") if test is not None else None
    return from_clients(clients, held_out, name=name, classes=class_names(first, y), size=size)
