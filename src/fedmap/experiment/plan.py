"""What is left of an experiment's work and how long it will take, and carrying it out."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from fedmap.experiment.work import OnStep, Work


class Plan(NamedTuple):
    """The work of an experiment, and how many seconds each piece that is not done will take."""

    done: list[Work]
    left: list[tuple[Work, float]]

    @property
    def seconds(self) -> float:
        """How long all that is left will take."""
        return sum(seconds for _, seconds in self.left)


def plan(work: Iterable[Work], root: Path) -> Plan:
    """What is done already, and what is left, with times measured on this machine."""
    done: list[Work] = []
    left: list[tuple[Work, float]] = []
    # the same piece may be asked for twice
    for piece in {piece.name: piece for piece in work}.values():
        if piece.done(root):
            done.append(piece)
        else:
            left.append((piece, piece.steps * piece.seconds_a_step()))
    return Plan(done, left)


def carry_out(work: Iterable[Work], root: Path, on_step: Callable[[Work], OnStep]) -> None:
    """Do the work in its order, without what is done already. `on_step` gives for each piece the
    function to call after its steps. Stopped at any moment, it can be started again."""
    for piece in work:
        if not piece.done(root):
            piece.go(root, on_step(piece))
