"""What is left of an experiment's work and how long it will take, and carrying it out."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from fedmap.experiment.progress import Seconds
from fedmap.experiment.runs import RunWork
from fedmap.experiment.spread import spread
from fedmap.experiment.work import OnStep, Work
from fedmap.simulate.cluster import connected


class Plan(NamedTuple):
    """The work of an experiment, and the seconds that each piece that is not done will take."""

    done: list[Work]
    left: list[tuple[Work, Seconds]]
    begun: dict[str, int]  # steps that are done of what is left, by name

    def seconds_of(self, work: Work, seconds: Seconds) -> float:
        """What is left of one piece."""
        return seconds.of(work.steps - self.begun.get(work.name, 0))

    @property
    def seconds(self) -> float:
        """How long all that is left will take."""
        return sum(self.seconds_of(*one) for one in self.left)


def plan(work: Iterable[Work], root: Path) -> Plan:
    """What is done already, and what is left, with times measured on this machine."""
    found = Plan([], [], {})
    # the same piece may be asked for twice
    for piece in {piece.name: piece for piece in work}.values():
        if piece.done(root):
            found.done.append(piece)
            continue
        found.left.append((piece, Seconds(piece.seconds_a_step(), piece.seconds_at_end())))
        if isinstance(piece, RunWork):
            found.begun[piece.name] = piece.steps_done(root)
    return found


def carry_out(work: Iterable[Work], root: Path, on_step: Callable[[Work], OnStep]) -> None:
    """Do the work in its order, without what is done already. `on_step` gives for each piece the
    function to call after its steps. Stopped at any moment, it can be started again. On a Ray
    cluster, runs are spread over the nodes first."""
    work = list(work)
    on_ray = {
        piece.name: piece
        for piece in work
        if isinstance(piece, RunWork)
        and piece.settings.engine_name == "ray"
        and not piece.done(root)
    }
    with ExitStack() as stack:
        for run in list(on_ray.values())[:1]:  # one connection for all
            how = run.settings
            ray = stack.enter_context(connected(how.ray_address, how.workers))
            spread(list(on_ray.values()), root, on_step, ray)
        for piece in work:
            if not piece.done(root):
                piece.go(root, on_step(piece))
