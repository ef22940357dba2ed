"""From the text of options to values, the number of cores and workers, sentences for a terminal."""

import os
import re
import sys
from contextlib import suppress
from typing import Any

from fedmap.errors import FedmapError

MOST_SEEDS = 10_000  # of one range


def pair(text: str, flag: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE."""
    name, equals, right = text.partition("=")
    if not equals or not name:
        raise FedmapError(f"{flag} {text!r} is not of the form NAME=VALUE")
    return name, right


def values(pairs: list[str], flag: str) -> dict[str, Any]:
    """The values of NAME=VALUE pairs by name."""
    from fedmap.params import value_of  # pydantic, for which `fedmap --help` must not wait

    return {name: value_of(right) for name, right in once(pairs, flag).items()}


def grid_values(pairs: list[str], flag: str) -> dict[str, list[Any] | str]:
    """The lists of values of NAME=VALUE,VALUE pairs by name; a range LOW..HIGH stays text."""
    from fedmap.params import value_of

    return {
        name: right
        if ".." in right
        else [value_of(part) for part in listed(right, f"{flag} {name}")]
        for name, right in once(pairs, flag).items()
    }


def once(pairs: list[str], flag: str) -> dict[str, str]:
    """The right sides of NAME=VALUE pairs by name, each of which may be given once."""
    found: dict[str, str] = {}
    for name, right in (pair(text, flag) for text in pairs):
        if name in found:
            raise FedmapError(f"{flag} {name} is given twice: {found[name]} and {right}")
        found[name] = right
    return found


def listed(text: str, flag: str, between: str = ",") -> list[str]:
    """The different parts of a list, in their order; at least one. What is in square brackets stays
    together."""
    split = re.split(rf"{re.escape(between)}(?![^\[]*\])", text)
    parts = [part.strip() for part in split if part.strip()]
    if not parts:
        raise FedmapError(f"{flag} is empty; give at least one, with {between!r} between several")
    return list(dict.fromkeys(parts))


def seed_list(text: str) -> list[int]:
    """The seeds of a list with commas, such as 0,1,2 or 0-2."""
    seeds: list[int] = []
    for part in listed(text, "--seeds"):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part, re.ASCII)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise FedmapError(
                f"--seeds {text!r} is not a list of whole numbers such as 0,1,2 or 0-2"
            )
        some = range(int(ends[1]), int(ends[2] or ends[1]) + 1)
        if some[-1] - some[0] >= MOST_SEEDS:
            raise FedmapError(f"--seeds {text!r} are too many; at most {MOST_SEEDS} are allowed")
        seeds += some
    return list(dict.fromkeys(seeds))


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


def say(sentence: str) -> None:
    """A sentence on standard error, if anybody is there to read it."""
    with suppress(OSError):  # the terminal was closed
        print(printable(sentence), file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """The text without what a terminal would obey: a file's name can hold escape sequences."""
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode()
        for one in text
    )
