"""Values and plain records as Flower's messages carry them, and back. What comes back is from
another machine: it is read as data, and anything else is refused with a sentence."""

import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import BaseModel, ValidationError
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.values import Values

WORDS, ARRAYS = "fedmap", "values"  # the two records of every message
R = TypeVar("R", bound=BaseModel)


def arrays(values: Mapping[str, Tensor]) -> ArrayRecord:
    """Tensors as Flower sends them. One record can be part of many messages."""
    return ArrayRecord(OrderedDict((name, _array(name, value)) for name, value in values.items()))


def _array(name: str, value: Tensor) -> Array:
    try:
        return Array(value.detach().cpu().contiguous().numpy())
    except TypeError:
        raise FedmapError(f"entry {name!r} is {value.dtype}, which Flower cannot send") from None


def message(words: BaseModel, values: ArrayRecord | None = None) -> RecordDict:
    """The content of a message: what is said, and tensors."""
    content = RecordDict({WORDS: ConfigRecord({"json": words.model_dump_json()})})
    content[ARRAYS] = arrays({}) if values is None else values
    return content


def words(content: RecordDict, kind: type[R]) -> R:
    """What a message says."""
    try:
        return kind.model_validate_json(str(content.config_records[WORDS]["json"]))
    except (KeyError, ValidationError, json.JSONDecodeError) as wrong:
        what = str(wrong).splitlines()[0]
        raise FedmapError(
            f"a message that is no {kind.__name__} of this version of fedmap ({what})"
        ) from None


def values(content: RecordDict) -> Values:
    """The tensors of a message."""
    record: Any = content.array_records.get(ARRAYS, {})
    return {str(name): _tensor(str(name), array) for name, array in record.items()}


def _tensor(name: str, array: Array) -> Tensor:
    try:
        return torch.from_numpy(array.numpy())
    except Exception as wrong:  # bytes from another machine can raise anything
        raise FedmapError(f"entry {name!r} cannot be read ({type(wrong).__name__})") from None
