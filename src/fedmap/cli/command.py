"""From settings back to the command that gives them."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, get_type_hints

from fedmap.cli import options

BUNDLES = (
    options.MethodOptions,
    options.NetOption,
    options.ClientOptions,
    options.TrainingOptions,
    options.GuardOptions,
    options.AttackOptions,
    options.SeedOption,
    options.RunOptions,
)


def flags() -> dict[str, str]:
    """The first flag of each option of `fedmap run`, by the name of its setting. (Typer calls the
    first of an option's names its default.)"""
    return {
        name: hint.__metadata__[0].default
        for bundle in BUNDLES
        for name, hint in get_type_hints(bundle, include_extras=True).items()
    }


def command(settings: Mapping[str, Any]) -> str:
    """`fedmap run` with these settings, ready to be pasted."""
    known = flags()
    words = [
        word
        for name, value in settings.items()
        if name in known and value is not None
        for word in said(known[name], value)
    ]
    return shlex.join(["fedmap", "run", *words])


def said(flag: str, value: Any) -> Iterator[str]:
    """One option with its value, or values."""
    if value is True:
        yield flag
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from (flag, f"{name}={in_text(one)}")
    elif isinstance(value, list | tuple):
        yield from (flag, ",".join(map(str, value)))
    elif value is not False:
        yield from (flag, str(value))


def in_text(value: Any) -> str:
    """A parameter as it is written after its name."""
    return str(value).lower() if isinstance(value, bool) else str(value)
