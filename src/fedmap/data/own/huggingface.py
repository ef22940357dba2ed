"""Hugging Face `datasets` objects, or anything else with columns by name, to a Dataset. The package
itself is not needed."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from PIL import Image

from fedmap.data.dataset import Dataset
from fedmap.data.files import images
from fedmap.data.own.arrays import Pair, from_clients, grouped
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
        clients = grouped(_pair(first, x, y, size, name), _column(first, client, name))
    elif isinstance(data, Mapping):
        first = next(iter(data.values()), None)
        tables = {str(key): table for key, table in data.items()}
        clients = {key: _pair(table, x, y, size, key) for key, table in tables.items()}
    else:
        raise FedmapError(
            f"dataset {name}: name the column of clients (client=...), "
            "or give a dictionary with one table for each client"
        )
    held_out = _pair(test, x, y, size, "test") if test is not None else None
    return from_clients(clients, held_out, name=name, classes=_class_names(first, y), size=size)


def _pair(table: Any, x: str | Sequence[str], y: str, size: images.Size | None, name: str) -> Pair:
    """Samples and labels of one table, which has the given name in error messages."""
    return _samples(table, x, size, name), np.array(list(_column(table, y, name)))


def _samples(table: Any, x: str | Sequence[str], size: images.Size | None, name: str) -> Any:
    if not isinstance(x, str):
        columns = [_stack(list(_column(table, key, name)), f"{name}, column {key}") for key in x]
        return np.stack(columns, 1)
    values = list(_column(table, x, name))
    if values and isinstance(values[0], Image.Image):
        return images.stack(values, size, name)
    return _stack(values, name)


def _column(table: Any, column: str, name: str) -> Any:
    try:
        return table[column]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        known = getattr(table, "column_names", None) or getattr(table, "columns", None)
        if known is None:
            known = table.keys() if isinstance(table, Mapping) else ()
        there = f"; there are: {', '.join(map(str, known))}" if len(known) else ""
        raise FedmapError(f"{name}: there is no column {column!r}{there}") from error


def _stack(values: list[Any], name: str) -> Any:
    try:
        return np.array(values)
    except ValueError as error:
        raise FedmapError(f"{name}: the samples differ in shape ({error})") from error


def _class_names(table: Any, y: str) -> Sequence[str] | None:
    """`datasets.ClassLabel` keeps the names of the classes."""
    features = getattr(table, "features", None)
    if isinstance(features, Mapping) and y in features:
        return getattr(features[y], "names", None)
    return None
