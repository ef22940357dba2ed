"""From the text of options to values, and the number of cores."""

import os
import re
from typing import Any

from fedmap.errors import FedmapError
from fedmap.params import value_of


def pair(text: str, flag: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, equals, right = text.partition("=")
    if not equals or not name:
        raise FedmapError(f"{flag} {text!r} is not of the form NAME=VALUE")
    return name, right


def values(pairs: list[str], flag: str) -> dict[str, Any]:
    """The values of NAME=VALUE pairs by name."""
    return {name: value_of(right) for name, right in (pair(text, flag) for text in pairs)}


def grid_values(pairs: list[str], flag: str) -> dict[str, list[Any]]:
    """The lists of values of NAME=VALUE,VALUE pairs by name."""
    return {
        name: [value_of(part) for part in listed(right, f"{flag} {name}")]
        for name, right in (pair(text, flag) for text in pairs)
    }


def listed(text: str, flag: str, between: str = ",") -> list[str]:
    """The different parts of a list, in their order; at least one. What is in square brackets stays
    together."""
    split = re.split(rf"{re.escape(between)}(?![^\[]*\])", text)
    parts = [part.strip() for part in split if part.strip()]
    if not parts:
        raise FedmapError(f"{flag} is empty; give at least one, with {between!r} between several")
    return list(dict.fromkeys(parts))


def seed_list(text: str) -> list[int]:
    """The seeds of a list with commas."""
    numbers = listed(text, "--seeds")
    if not all(number.isdigit() for number in numbers):
        raise FedmapError(f"--seeds {text!r} is not a list of whole numbers such as 0,1,2")
    return [int(number) for number in numbers]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
