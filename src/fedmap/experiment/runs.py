"""A run as a piece of work of an experiment."""

from functools import cached_property, lru_cache
from pathlib import Path

from fedmap.errors import DivergenceError
from fedmap.experiment.measure import seconds_of_run
from fedmap.experiment.work import OnStep
from fedmap.federation import Federation
from fedmap.simulate.folder import write_atomically
from fedmap.simulate.progress import by_round, say_early_end
from fedmap.simulate.result import Result
from fedmap.simulate.run import Run
from fedmap.simulate.settings import FEDERATION, Settings


def federation_of(settings: Settings) -> Federation:
    """The federation of some settings; runs of one federation, one after the other, share it."""
    return _federation(settings.model_dump_json(include=FEDERATION))


@lru_cache(maxsize=1)
def _federation(settings: str) -> Federation:
    return Settings.model_validate_json(settings).federation()


class RunWork:
    """One run, in the folder that `fedmap run` would give it. A federation is given where the
    settings cannot lead to it."""

    def __init__(
        self, settings: Settings, label: str | None = None, federation: Federation | None = None
    ) -> None:
        self.settings = settings
        self.label = label or f"{settings.label} #{settings.seed}"
        self._federation = federation

    @property
    def federation(self) -> Federation:
        """The clients and their data."""
        return self._federation or federation_of(self.settings)

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
        return (root / self.name / "done").exists() or self.diverged(root)

    def diverged(self, root: Path) -> bool:
        """Did its training leave the finite numbers? The experiment goes on without it."""
        return (root / self.name / "diverged").exists()

    def seconds_a_step(self) -> float:
        """How long a round takes with its share of the end, measured now on this machine."""
        return seconds_of_run(self.resolved, self.federation) / self.steps

    def go(self, root: Path, on_step: OnStep) -> None:
        """All rounds that are left. A run that diverges leaves a file that says so."""
        run = Run(self.resolved, self.federation, root / self.name)
        try:
            done = len(run.go(True, by_round(on_step)).rounds)
            say_early_end(on_step, self.steps, done)
        except DivergenceError as sentence:
            write_atomically(root / self.name / "diverged", f"{sentence}\n".encode())
            on_step(self.steps, "diverged")

    def result(self, root: Path) -> Result:
        """What the finished run left."""
        settings = self.resolved
        return Result.read(root / self.name, method=settings.code["method"], net=settings.any_net)
