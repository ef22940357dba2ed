"""From the text of options to values, and the number of cores and workers."""

import json
import os
from typing import Any

from fedmap.errors import FedmapError


def value(text: str) -> Any:
    """Numbers, true and false are taken as such, all else as text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def pair(text: str, flag: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, equals, right = text.partition("=")
    if not equals or not name:
        raise FedmapError(f"{flag} {text!r} is not of the form NAME=VALUE")
    return name, right


def values(pairs: list[str], flag: str) -> dict[str, Any]:
    """The values of NAME=VALUE pairs by name."""
    return {name: value(right) for name, right in (pair(text, flag) for text in pairs)}


def grid_values(pairs: list[str], flag: str) -> dict[str, list[Any]]:
    """The lists of values of NAME=VALUE,VALUE pairs by name."""
    return {
        name: [value(part) for part in listed(right, f"{flag} {name}")]
        for name, right in (pair(text, flag) for text in pairs)
    }


def listed(text: str, flag: str, between: str = ",") -> list[str]:
    """The different parts of a list, in their order; at least one."""
    parts = [part.strip() for part in text.split(between) if part.strip()]
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


def default_workers(device: str | None) -> int:
    """One worker for each core; off the CPU one for each device."""
    if device in (None, "cpu"):
        return cores()
    from fedmap import devices  # torch takes its time

    found = devices.chosen(device)
    return cores() if found is None else devices.count(found) or 1
