"""How far an experiment is: counted here after each step, shown elsewhere."""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fedmap.experiment.work import OnStep


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
LENT = 3  # steps of a piece that the pace of all counts for


class Seconds(NamedTuple):
    """What a piece of work is foreseen to take."""

    step: float
    end: float = 0.0  # after the last step

    def of(self, steps: int) -> float:
        """So many steps and the end."""
        return steps * self.step + self.end


class Labeled(Protocol):
    """What is shown of a piece of work."""

    @property
    def label(self) -> str: ...

    @property
    def steps(self) -> int: ...


class Piece:
    """A piece of work as the watch sees it."""

    def __init__(self, work: Labeled, seconds: Seconds, done: int) -> None:
        self.work = work
        self.seconds = seconds
        self.done = done  # steps
        self.seen = False

    @property
    def left(self) -> float:
        """The foreseen seconds of what is left. The end belongs to the last step."""
        left = self.work.steps - self.done
        return self.seconds.of(left) if left else 0.0


class Watch:
    """Turns the steps of pieces of work into the progress of the whole.

    Each piece comes with the seconds that it is foreseen to take. How long the rest takes follows
    from how much of their time pieces have really taken: those with the same foreseen seconds (a
    method with other seeds) go by their own, others by the mean of all. `before` are the steps that
    each piece has done already."""

    def __init__(
        self,
        work: Sequence[tuple[Labeled, Seconds]],
        show: OnProgress,
        clock: Callable[[], float] = time.monotonic,
        before: Sequence[int] = (),
    ) -> None:
        done = before or [0] * len(work)
        self._pieces = [Piece(*one, n) for one, n in zip(work, done, strict=True)]
        self._show = show
        self._clock = clock
        self._last = clock()
        self._ending: list[Piece] = []  # whose end goes on, until another piece begins
        self._took: dict[Seconds, tuple[float, float]] = {}  # really, and foreseen
        for piece in self._pieces:
            if piece.done and not piece.left:
                self._tell(piece, "finished before")

    def of(self, work: Labeled) -> OnStep:
        """The function to call after each step of this piece; a leap to the last step ends it
        early, without the steps between. Several pieces may go on at once; one before them of
        which no step was seen was done already."""
        piece = self._piece(work)
        if self._ending:
            self._time([(one, one.seconds.end) for one in self._ending])

        def on_step(step: int, now: str) -> None:
            early = piece.seen and step > piece.done + 1
            self._count(piece, early)
            steps = piece.done if early else work.steps
            # work that was resumed begins with a later step than the first
            piece.seen, piece.done = True, step
            self._ending = [piece] if step == work.steps and not early else []
            self._tell(piece, now, steps)

        return on_step

    def finished(self, work: Labeled, now: str = "finished before") -> None:
        """Nothing of this piece has to be done any more; shown if there are words for it."""
        piece = self._piece(work)
        piece.done = work.steps
        if now:
            self._tell(piece, now)

    def _piece(self, work: Labeled) -> Piece:
        return next(piece for piece in self._pieces if piece.work is work)

    def _count(self, piece: Piece, early: bool) -> None:
        """A step is done, or the end of a piece that comes early. The first step of a piece has its
        start in it, and tells little where another pace is known."""
        own = piece.seconds.end if early else piece.seconds.step
        step = [(piece, own)] if piece.seen or not self._took else []
        self._time([*step, *((one, one.seconds.end) for one in self._ending)])

    def _time(self, due: list[tuple[Piece, float]]) -> None:
        """Share the time since the last reading among those that it went to, as is foreseen."""
        now = self._clock()
        self._ending = []
        whole = sum(seconds for _, seconds in due)
        for one, seconds in due if whole else ():
            took, foreseen = self._took.get(one.seconds, (0.0, 0.0))
            took += (now - self._last) * seconds / whole
            self._took[one.seconds] = took, foreseen + seconds
        self._last = now

    def _tell(self, piece: Piece, now: str, steps: int | None = None) -> None:
        steps = steps or piece.work.steps
        left = self._left()
        whole = sum(one.seconds.of(one.work.steps) for one in self._pieces)
        share = 1 - sum(one.left for one in left) / whole
        seconds = sum(one.left * self._pace(one) for one in left)
        done = min(piece.done, steps)
        pieces = len(self._pieces)
        self._show(Progress(piece.work.label, done, steps, now, pieces, share, seconds))

    def _left(self) -> list[Piece]:
        """The pieces of which something may be left."""
        places = [place for place, piece in enumerate(self._pieces) if piece.seen]
        begun = max(places, default=0)
        return [one for k, one in enumerate(self._pieces) if one.seen or k >= begun]

    def _pace(self, piece: Piece) -> float:
        """How many times its foreseen seconds a piece takes. Until many of its steps are seen, the
        pace of all counts as some of its own."""
        foreseen = sum(of for _, of in self._took.values())
        of_all = sum(took for took, _ in self._took.values()) / foreseen if foreseen else 1.0
        took, own = self._took.get(piece.seconds, (0.0, 0.0))
        lent = LENT * piece.seconds.step
        return (took + lent * of_all) / (own + lent)
