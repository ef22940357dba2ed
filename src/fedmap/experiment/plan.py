"""What is left of an experiment's work and how long it will take, and carrying it out."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fedmap.experiment.work import OnStep, Work


class Plan(NamedTuple):
    """The work of a study, and how many seconds each piece that is not done will take."""

    done: list[Work]
    left: list[tuple[Work, float]]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.left)


def plan(work: Iterable[Work], root: Path) -> Plan:
    """What is done already, and what is left, with times measured on this machine."""
    pieces = {piece.name: piece for piece in work}  # the same piece may be asked for twice
    done = [piece for piece in pieces.values() if piece.done(root)]
    return Plan(
        done,
        [
            (piece, piece.steps * piece.seconds_a_step())
            for piece in pieces.values()
            if not piece.done(root)
        ],
    )


def carry_out(work: Sequence[Work], root: Path, on_step: Callable[[Work], OnStep]) -> None:
    """Do the work in its order. Stopped at any moment, it can be started again."""
    for piece in work:
        piece.go(root, on_step(piece))
