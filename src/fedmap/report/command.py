"""The command that repeats a run, from its settings."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

from fedmap import own_code
from fedmap.methods import METHODS
from fedmap.simulate.settings import NO_NUMBERS, Settings

ALWAYS = {"data", "rounds", "fraction", "epochs", "batch", "lr", "seed"}  # defaults of theirs vary
APART = {"method", "params", "partition_params"}
FLAGS = {"label_column": "--label"}  # the others are called after their settings


def command(settings: Settings) -> str:
    """`fedmap run` with every setting that is not a default. Nothing where no command can repeat
    the run: it was given arrays or code in Python, or its samples are at real sites."""
    own = any(str(name).startswith(own_code.PYTHON) for name in settings.code.values())
    if own or settings.data in ("arrays", "sites"):
        return ""
    words = ["fedmap", "run", "--method", settings.method]
    for name, value in not_defaults(settings.method, settings.params).items():
        words += ["-p", f"{name}={text(value)}"]
    for name, value in settings.partition_params.items():
        words += ["--partition-param", f"{name}={text(value)}"]
    for name, value in _chosen(settings):
        words += [FLAGS.get(name, f"--{name.replace('_', '-')}"), text(value)]
    return shlex.join(words)


def not_defaults(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters that are not the method's own defaults; all of a method that is not known."""
    fields = METHODS[method].Params.model_fields if method in METHODS else {}
    return {
        name: value
        for name, value in params.items()
        if name not in fields or value != fields[name].default
    }


def text(value: Any) -> str:
    """A value as an option takes it."""
    if isinstance(value, str):
        return value
    return ",".join(value) if isinstance(value, tuple) else json.dumps(value)


def _chosen(settings: Settings) -> Iterator[tuple[str, Any]]:
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        unsaid = value is None or value == () or (name not in ALWAYS and value == field.default)
        number = name not in NO_NUMBERS or name == "data_dir"
        drawn_alike = name == "partition_seed" and value == settings.seed
        if number and name not in APART and not unsaid and not drawn_alike:
            yield name, value
