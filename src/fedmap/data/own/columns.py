"""Tables with columns by name, such as `datasets` objects of Hugging Face, to arrays of samples and
labels. The package itself is not needed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from fedmap.data.files import images
from fedmap.errors import FedmapError

LABELS = ("label", "labels", "y")  # usual names of columns
SAMPLES = ("image", "img", "x")


def is_table(thing: object) -> bool:
    """Does it look like `datasets.Dataset`?"""
    return hasattr(thing, "column_names") and hasattr(thing, "features")


def guessed_pair(
    table: Any, size: images.Size | None, name: str
) -> tuple[npt.ArrayLike, npt.ArrayLike]:
    """Samples and labels of a table that knows its columns: the label is the one with class names,
    or has a usual name; samples are a column of a usual name, else all the others. Labels become
    names, because another client may number its classes differently."""
    names = list(table.column_names)
    known = [column for column in names if class_names(table, column)]
    labels = known or [column for column in LABELS if column in names]
    if len(labels) != 1 or len(names) < 2:
        raise FedmapError(
            f"{name}: columns {', '.join(names)}, of which {len(labels)} could be the labels; "
            "name them: fedmap.data.from_huggingface(..., x=..., y=...)"
        )
    others = [column for column in names if column != labels[0]]
    usual = [column for column in SAMPLES if column in others][:1]
    x = (usual or others)[0] if usual or len(others) == 1 else others
    samples, numbers = pair(table, x, labels[0], size, name)
    classes = class_names(table, labels[0])
    return samples, named(numbers, classes, name) if classes else numbers


def named(numbers: Any, classes: Sequence[str], name: str) -> npt.NDArray[Any]:
    """The class names of some labels."""
    wrong = [number for number in numbers.tolist() if not 0 <= number < len(classes)]
    if wrong:
        raise FedmapError(
            f"{name}: label {wrong[0]} is none of the classes 0 to {len(classes) - 1}"
        )
    return np.array([str(classes[number]) for number in numbers.tolist()])


def pair(
    table: Any, x: str | Sequence[str], y: str, size: images.Size | None, name: str
) -> tuple[Any, npt.NDArray[Any]]:
    """Samples and labels of one table, which has the given name in error messages."""
    return _samples(table, x, size, name), np.array(list(column(table, y, name)))


def _samples(table: Any, x: str | Sequence[str], size: images.Size | None, name: str) -> Any:
    if not isinstance(x, str):
        columns = [_stack(list(column(table, key, name)), f"{name}, column {key}") for key in x]
        return np.stack(columns, 1)
    values = list(column(table, x, name))
    if values and isinstance(values[0], Image.Image):
        return images.stack(values, size, name)
    return _stack(values, name)


def column(table: Any, column: str, name: str) -> Any:
    """A column by name; `name` is what error messages call the table."""
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


def class_names(table: Any, y: str) -> Sequence[str] | None:
    """`datasets.ClassLabel` keeps the names of the classes."""
    features = getattr(table, "features", None)
    if isinstance(features, Mapping) and y in features:
        return getattr(features[y], "names", None)
    return None
