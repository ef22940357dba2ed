"""What a sweep tries of each parameter: some values, or a range that a search draws from."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedmap.errors import FedmapError
from fedmap.params import value_of

RANGE = re.compile(r"(.+?)\.\.(.+?)(:log)?")
DIGITS = 4  # of a number that is drawn


class Range(NamedTuple):
    """All numbers from the lowest to the highest; whole ones if both are. In logarithms, every
    order of magnitude is as likely."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Only whole numbers?"""
        return isinstance(self.low, int) and isinstance(self.high, int)


Ways = Sequence[Any] | Range
Space = dict[str, Ways]


def space_of(given: Mapping[str, Any]) -> Space:
    """Ranges may be written as text: 0.1..0.9, or 1e-3..1e-1:log."""
    return {name: ways(name, values) for name, values in given.items()}


def ways(name: str, values: Any) -> Ways:
    """One parameter's."""
    if isinstance(values, Range):
        return checked(name, values, str(values))
    if isinstance(values, str):
        return parsed(name, values)
    if not values:
        raise FedmapError(f"the grid has no value for {name!r}; give at least one")
    return list(values)


def parsed(name: str, text: str) -> Range:
    """The range that a text means."""
    found = RANGE.fullmatch(text.strip())
    ends = [value_of(end) for end in found.groups()[:2]] if found else []
    if found is None or not all(type(end) in (int, float) for end in ends):
        raise FedmapError(
            f"{name}={text} is no range; write LOW..HIGH or LOW..HIGH:log with two numbers, such "
            "as 0.1..0.9 or 1e-3..1e-1:log"
        )
    return checked(name, Range(ends[0], ends[1], bool(found[3])), text)


def checked(name: str, range: Range, text: str) -> Range:
    """The range, if there is something in it."""
    if not range.low < range.high or (range.log and range.low <= 0):
        least = "above 0 " if range.log else ""
        raise FedmapError(
            f"{name}={text} is no range: the first number must be {least}below the second"
        )
    return range


def rounded(value: Any) -> Any:
    """A number that was drawn, with as many digits as a person would write."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def in_words(chosen: Mapping[str, Any]) -> str:
    """Each name with its value, as in the brackets of a variant."""
    return ",".join(f"{name}={value}" for name, value in chosen.items())
