"""Checking of parameters in one place, so that every wrong name or value gets the same kind of
sentence."""

import json
from types import NoneType
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fedmap.errors import FedmapError
from fedmap.registry import nearest

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], values: dict[str, Any], owner: str, also: tuple[str, ...] = ()) -> M:
    """The validated parameters, or one sentence that names the parameter, its value and what is
    allowed.

    `also` are names that the caller has taken out already but that belong into a list of what there
    is."""
    known = set(model.model_fields)
    for name in values:
        if name not in known:
            raise FedmapError(
                f"{owner} has no parameter {name!r}; "
                + (nearest(name, known | set(also)) if known else "it has none")
            )
    try:
        return model(**values)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if name not in known:
            raise FedmapError(f"{owner}: {first['msg'].removeprefix('Value error, ')}") from None
        value = values.get(name, first.get("input"))
        raise FedmapError(
            f"{owner}: {name} is {value!r}; allowed: {allowed(model.model_fields[name])}"
        ) from None


def value_of(text: str) -> Any:
    """What a user writes: numbers, true and false are taken as such, all else as text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def allowed(field: FieldInfo) -> str:
    """The values that a field takes, in words: 'number, 0 to 1', 'binary, soft or share'."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not NoneType]
    options = [option for kind in kinds for option in get_args(kind) or [kind]]
    if options and all(isinstance(o, str) for o in options):
        return (
            " or ".join([", ".join(options[:-1]), options[-1]]) if len(options) > 1 else options[0]
        )
    words = {bool: "true or false", int: "whole number", float: "number", str: "text"}.get(
        cast(type, field.annotation), "value"
    )
    nested = [limit for kind in kinds for limit in getattr(kind, "__metadata__", ())]
    bounds = {
        kind: getattr(limit, kind)
        for limit in (*field.metadata, *nested)
        for kind in ("ge", "gt", "le", "lt")
        if hasattr(limit, kind)
    }
    words_of = {"ge": "from {:g}", "gt": "above {:g}", "le": "up to {:g}", "lt": "below {:g}"}
    return " ".join([words, *(words_of[kind].format(bound) for kind, bound in bounds.items())])
