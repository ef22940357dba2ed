"""What an experiment is made of: pieces of work, each kept in its own folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

# called with the number of steps done so far and with what to show beside it
OnStep = Callable[[int, str], None]


class Work(Protocol):
    """One piece of work, kept in its own folder below a root, so that it is never done twice."""

    @property
    def name(self) -> str:
        """The name of its folder: different for different work."""
        ...

    @property
    def label(self) -> str:
        """What a person calls it."""
        ...

    @property
    def steps(self) -> int:
        """How many steps it has: rounds, or epochs."""
        ...

    def done(self, root: Path) -> bool:
        """Is it finished below this root?"""
        ...

    def seconds_a_step(self) -> float:
        """How long a step takes, measured now on this machine."""
        ...

    def seconds_at_end(self) -> float:
        """The same of what comes after the last step."""
        ...

    def go(self, root: Path, on_step: OnStep) -> None:
        """Do it, or go on with it where it was stopped."""
        ...
