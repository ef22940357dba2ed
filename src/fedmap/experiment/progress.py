"""How far an experiment is: counted here after each step, shown elsewhere."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fedmap.experiment.work import OnStep, Work


class Progress(NamedTuple):
    """Where an experiment stands after a step of one of its pieces of work."""

    label: str  # of the piece
    step: int
    steps: int  # of the piece
    now: str  # what the step gave, in words
    pieces: int  # of the whole experiment
    share: float  # of the whole experiment that is done, from 0 to 1
    seconds_left: float  # until the whole experiment is done


OnProgress = Callable[[Progress], None]


class Watch:
    """Turns the steps of pieces of work into the progress of the whole.

    Each piece comes with its weight: the seconds that a plan measured, or just its number of steps.
    Only the proportions of the weights matter: how long the rest takes follows from how fast the
    work has really gone since the watch was made."""

    def __init__(
        self,
        work: Sequence[tuple[Work, float]],
        show: OnProgress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._work = work
        self._show = show
        self._clock = clock
        self._began = clock()
        self._worked = 0.0  # weight of the steps that were seen
        self._total = sum(weight for _, weight in work)
        self._left: dict[
            int, float
        ] = {}  # by the place of a piece of which a step was seen: its weight

    def of(self, work: Work) -> OnStep:
        """The function to call after each step of this piece; a leap to the last step ends it
        early, without the steps between. Several pieces may go on at once; one before them of
        which no step was seen was done already."""
        place = next(i for i, (piece, _) in enumerate(self._work) if piece is work)
        weight_of_a_step = self._work[place][1] / work.steps
        last: int | None = None

        def on_step(step: int, now: str) -> None:
            nonlocal last
            early = last is not None and step > last + 1
            # work that was resumed begins with a later step than the first
            self._worked += 0 if early else weight_of_a_step
            self._left[place] = weight_of_a_step * (work.steps - step)
            later = sum(weight for _, weight in self._work[max(self._left) + 1 :])
            left = sum(self._left.values()) + later
            seconds_left = (self._clock() - self._began) / self._worked * left
            share = 1 - left / self._total
            steps = work.steps
            if early and last is not None:
                step = steps = last
            last = step
            self._show(Progress(work.label, step, steps, now, len(self._work), share, seconds_left))

        return on_step
