"""From what a user calls a method to its class: a registered name, a class in a file of the user's
own, or the class itself."""

from typing import Any, cast

from fedmap import own_code
from fedmap.errors import FedmapError
from fedmap.methods.base import METHODS, AnyMethod, Method
from fedmap.params import value_of


def find_method(method: str | type[AnyMethod]) -> type[AnyMethod]:
    """The method of this name; `path/to/file.py:Class` is a class in a file."""
    if not isinstance(method, str):
        return method
    if ":" not in method and not method.endswith(".py"):
        return METHODS[method]
    found: type[AnyMethod] = own_code.find("method", method, is_method, "subclass of fedmap.Method")
    return found


def variant(text: str) -> tuple[str, dict[str, Any]]:
    """A method and the parameters in its brackets: `map[alpha=0.5,transfer=mmd]`, or just `map`."""
    method, bracket, inside = text.partition("[")
    pairs = [pair.partition("=") for pair in inside.removesuffix("]").split(",")] if bracket else []
    if bracket and not (inside.endswith("]") and all(name and right for name, _, right in pairs)):
        raise FedmapError(f"{text!r} is not of the form METHOD[NAME=VALUE,NAME=VALUE]")
    return method, {name.strip(): value_of(right.strip()) for name, _, right in pairs}


def parameters_of(method: str | type[AnyMethod]) -> list[str]:
    """The names of a method's parameters, and `preset` where it has presets."""
    found = find_method(method)
    return [*found.Params.model_fields, *(["preset"] if found.presets else [])]


def method_name(method: object) -> str:
    """The name as a run keeps it: of a file the absolute path, of a class that is not registered a
    mark."""
    if isinstance(method, str):
        return own_code.full_name(method)
    if not is_method(method):
        raise FedmapError(
            f"method is {method!r}; a name, FILE.py:CLASS or a subclass of fedmap.Method is allowed"
        )
    found = cast(type[AnyMethod], method)
    registered = found.name() in METHODS and METHODS[found.name()] is found
    return found.name() if registered else own_code.mark(found)


def is_method(thing: Any) -> bool:
    """Is it a class of a method?"""
    return isinstance(thing, type) and issubclass(thing, Method)
