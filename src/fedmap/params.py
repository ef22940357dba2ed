"""Checking of parameters in one place, so that every wrong name or value gets the same kind of sentence."""

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from fedmap.errors import FedmapError
from fedmap.registry import nearest

M = TypeVar("M", bound=BaseModel)


def checked(model: type[M], values: dict[str, Any], whose: str) -> M:
    """The validated parameters, or one sentence that names the parameter, its value and what is allowed."""
    known = set(model.model_fields)
    for name in values:
        if name not in known:
            raise FedmapError(f"{whose} has no parameter {name!r}; " + (nearest(name, known) if known else "it has none"))
    try:
        return model(**values)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if name not in known:
            raise FedmapError(f"{whose}: {first['msg'].removeprefix('Value error, ')}") from None
        value = values.get(name, first.get("input"))
        raise FedmapError(f"{whose}: {name} is {value!r}; allowed: {allowed(model.model_fields[name])}") from None


def allowed(field: FieldInfo) -> str:
    """The values that a field takes, in words: 'number, 0 to 1', 'binary, soft or share'."""
    options = getattr(field.annotation, "__args__", None)
    if options and all(isinstance(o, str) for o in options):
        return " or ".join([", ".join(options[:-1]), options[-1]]) if len(options) > 1 else options[0]
    words = {bool: "true or false", int: "whole number", float: "number", str: "text"}.get(field.annotation, "value")  # type: ignore[arg-type]
    low = [
        f"{'from' if hasattr(m, 'ge') else 'above'} {getattr(m, 'ge', None) if hasattr(m, 'ge') else m.gt:g}"
        for m in field.metadata
        if hasattr(m, "ge") or hasattr(m, "gt")
    ]
    high = [
        f"{'to' if hasattr(m, 'le') else 'below'} {m.le if hasattr(m, 'le') else m.lt:g}"
        for m in field.metadata
        if hasattr(m, "le") or hasattr(m, "lt")
    ]
    return " ".join([words, *low, *high])
