"""What an experiment is made of: pieces of work, each kept in a folder of its own, so that it is
never done twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

OnStep = Callable[[int, str], None]  # steps done so far, and what to show beside them


class Work(Protocol):
    """One piece of work, kept in a folder of its own below a root, so that it is never done twice."""

    @property
    def name(self) -> str:
        """Of its folder: different for different work."""
        ...

    @property
    def label(self) -> str:
        """What a person calls it."""
        ...

    @property
    def steps(self) -> int:
        """Rounds, or epochs."""
        ...

    def done(self, root: Path) -> bool: ...

    def seconds_a_step(self) -> float:
        """Measured now, on this machine."""
        ...

    def go(self, root: Path, on_step: OnStep) -> None:
        """Do it, or go on with it where it was stopped."""
        ...
