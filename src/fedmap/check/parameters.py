"""Does a method refuse parameters that are outside their range?"""

from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fedmap.check.require import require
from fedmap.errors import FedmapError
from fedmap.methods import AnyMethod


def refuses_wrong_parameters(method: type[AnyMethod], params: dict[str, Any]) -> None:
    """One value beyond each bound, an unknown name, no choice of a list; what the class itself
    offers is accepted."""
    for offered in [params, *({"preset": name} for name in method.presets)]:
        try:
            method(**offered)
        except FedmapError as refused:
            raise AssertionError(f"it refuses {offered}: {refused}") from refused
    wrong = [
        (name, value)
        for name, field in method.Params.model_fields.items()
        for value in beyond(field)
    ]
    for name, value in [*wrong, ("no_such_parameter", 0)]:
        try:
            method(**params | {name: value})
        except FedmapError as refused:
            require(
                name in str(refused),
                f"the refusal of {name} = {value!r} does not name the parameter: {refused}",
            )
        else:
            raise AssertionError(
                f"it takes {name} = {value!r}, which is outside what its Params allow"
            )


def beyond(field: FieldInfo) -> list[Any]:
    """A value just outside each bound of a field."""
    outside: dict[str, Callable[[Any], Any]] = {
        "ge": lambda bound: bound - 1,
        "gt": lambda bound: bound,
        "le": lambda bound: bound + 1,
        "lt": lambda bound: bound,
    }
    values = [
        step(getattr(limit, kind))
        for limit in field.metadata
        for kind, step in outside.items()
        if hasattr(limit, kind)
    ]
    return values + ["no such choice"] * (
        get_origin(field.annotation) is Literal
        and "no such choice" not in get_args(field.annotation)
    )
