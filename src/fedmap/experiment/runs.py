"""A run as a piece of work of an experiment."""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path

from fedmap.errors import DivergenceError
from fedmap.experiment.measure import Expected
from fedmap.experiment.work import OnStep
from fedmap.federation import Federation
from fedmap.simulate.callbacks import Callback
from fedmap.simulate.folder import Record, RunFolder
from fedmap.simulate.progress import by_round, say_early_end
from fedmap.simulate.result import Result
from fedmap.simulate.run import OnRound, Run
from fedmap.simulate.same import refuse_another_federation
from fedmap.simulate.settings import FEDERATION, Settings


def federation_of(settings: Settings) -> Federation:
    """The federation of some settings; runs of one federation, one after the other, share it."""
    return _federation(settings.model_dump_json(include=FEDERATION))


@lru_cache(maxsize=1)
def _federation(settings: str) -> Federation:
    return Settings.model_validate_json(settings).federation()


MakeCallback = Callable[[], Callback]  # such as a class: each run has its own


class RunWork:
    """One run, in the folder that `fedmap run` would give it. A federation is given where the
    settings cannot lead to it; `callbacks` make those that are told of this run."""

    def __init__(
        self,
        settings: Settings,
        label: str | None = None,
        federation: Federation | None = None,
        callbacks: Sequence[MakeCallback] = (),
    ) -> None:
        self.settings = settings
        self.label = label or f"{settings.label} #{settings.seed}"
        self._federation = federation
        self._make = callbacks

    @property
    def federation(self) -> Federation:
        """The clients and their data."""
        return self._federation or federation_of(self.settings)

    def callbacks(self) -> list[Callback]:
        """New ones, to be told of this run."""
        return [make() for make in self._make]

    @cached_property
    def resolved(self) -> Settings:
        """The settings with what only the federation and the machine can say."""
        return self.settings.resolved(self.federation)

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.resolved.name

    @property
    def steps(self) -> int:
        """Its rounds."""
        return self.settings.rounds

    def done(self, root: Path) -> bool:
        """Did it reach its end, or diverge on the way?"""
        return self.finished(root) or self.diverged(root)

    def finished(self, root: Path) -> bool:
        """Is there a result?"""
        return (root / self.name / "done").exists()

    def diverged(self, root: Path) -> bool:
        """Did its training leave the finite numbers? The experiment goes on without it."""
        return (root / self.name / "diverged").exists()

    def records(self, root: Path) -> list[Record]:
        """The rounds so far, of a run that need not be finished."""
        return RunFolder(root / self.name).records_so_far()

    def refuse_other_data(self, root: Path) -> None:
        """Refuse a run that was begun before its data or clients changed."""
        folder = RunFolder(root / self.name)
        if folder.description.exists():
            refuse_another_federation(folder, self.federation)

    def steps_done(self, root: Path) -> int:
        """How many of its rounds need not be done any more."""
        return self.steps if self.done(root) else len(self.records(root))

    def seconds_a_step(self) -> float:
        """How long a round takes, measured now on this machine."""
        return Expected(self.resolved, self.federation).round()

    def seconds_at_end(self) -> float:
        """How long it takes to make and test every client's personal model."""
        return Expected(self.resolved, self.federation).end()

    def go(self, root: Path, on_step: OnStep, on_round: OnRound = lambda record: None) -> None:
        """All rounds that are left. A run that diverges leaves a file that says so."""
        run = Run(self.resolved, self.federation, root / self.name)
        shown = by_round(on_step)

        def after(record: Record) -> None:
            shown(record)
            on_round(record)

        try:
            result = run.go(True, after, callbacks=self.callbacks())
            say_early_end(on_step, self.steps, len(result.rounds))
        except DivergenceError:
            on_step(self.steps, "diverged")

    def result(self, root: Path) -> Result:
        """What the finished run left."""
        settings = self.resolved
        return Result.read(root / self.name, method=settings.code["method"], net=settings.any_net)
