"""A search for good values with Optuna: what is tried next follows from what was reached before, on
samples that are neither trained nor tested on.

Nothing is stored but the runs. Started again, the search asks the same questions: its sampler has a
seed, and the answers of finished runs are in their records. So the same values come in the same
order, to the point where it was stopped."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any

from fedmap.errors import FedmapError
from fedmap.experiment.lists import noted, runs_of, unseen
from fedmap.experiment.progress import OnProgress, Seconds, Watch
from fedmap.experiment.runs import MakeCallback, RunWork
from fedmap.experiment.space import Range, Space, Ways, in_words, rounded
from fedmap.experiment.sweep import Sweep, with_values
from fedmap.experiment.work import OnStep
from fedmap.simulate.choose import score
from fedmap.simulate.folder import Record, write_atomically
from fedmap.simulate.settings import Settings

VALIDATION = 0.1  # unless another share is given
PRUNERS = ("median", "hyperband", "none")
FREE = 4  # trials that the median needs before it stops others


Begin = Callable[["Slot"], OnStep]


class PrunedError(Exception):
    """A run falls behind the others."""


class Slot:
    """A place in the list of runs, whose label is known when its turn comes."""

    def __init__(self, number: int, steps: int) -> None:
        self.label = f"run {number}"
        self.name = ""  # of its folder
        self.steps = steps


def search(
    settings: dict[str, Any],
    space: Space,
    trials: int,
    prune: str,
    seeds: Sequence[int],
    out: Path,
    on_progress: OnProgress | None,
    callbacks: Sequence[MakeCallback] = (),
) -> Sweep:
    """Try as many combinations as there are trials. One that diverges counts as nothing right."""
    settings = held_out(settings)
    check(space, trials, prune)
    first = probe(settings, space)
    seeds = list(dict.fromkeys(seeds))
    found, rounds = Sweep({}, out), first.rounds
    slots = [Slot(number + 1, rounds) for number in range(trials * len(seeds))]
    watch = Watch([(slot, Seconds(1.0)) for slot in slots], on_progress or unseen)
    begin = noted(slots, out, watch.of)
    with silent() as optuna:
        study = new_study(optuna, prune, rounds, len(seeds), seeds[0] if seeds else 0)
        for number in range(trials):
            trial = study.ask()
            values = {name: drawn(trial, name, ways) for name, ways in space.items()}
            given = with_values(settings, values)
            label = f"{first.label}[{in_words(values)}]"
            own = slots[number * len(seeds) : (number + 1) * len(seeds)]
            runs = runs_of({label: given}, seeds, callbacks)[label]
            found.runs[label], found.chosen[label], found.given[label] = runs, values, given
            attempt = Attempt(trial, runs, out, begin, watch)
            try:
                study.tell(trial, attempt.go(own))
                found.pruned.pop(label, None)  # the same values may be tried twice
            except PrunedError:
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                found.pruned[label] = attempt.round, attempt.reached
            for slot in own:
                watch.finished(slot, now="")
    return found


def held_out(settings: dict[str, Any]) -> dict[str, Any]:
    """With samples to choose by: a search on the test sets would find what fits the tests."""
    validation = settings.get("validation", VALIDATION)
    if not validation:
        raise FedmapError(
            f"validation is {validation}, but a search needs samples to choose by that are no test "
            f"samples; give a share, such as --validation {VALIDATION}"
        )
    return settings | {"validation": validation}


def check(space: Space, trials: int, prune: str) -> None:
    """Refuse what makes no search."""
    if not space:
        raise FedmapError("there is nothing to search; give a parameter with its values or a range")
    if trials < 1:
        raise FedmapError(f"trials is {trials}; allowed: whole number from 1")
    if prune not in PRUNERS:
        raise FedmapError(f"prune is {prune!r}; allowed: {', '.join(PRUNERS)}")


def probe(settings: dict[str, Any], space: Space) -> Settings:
    """The settings with the ends of all ranges and with all values, each checked before anything
    runs."""
    ends = {
        name: [ways.low, ways.high] if isinstance(ways, Range) else list(ways)
        for name, ways in space.items()
    }
    usual = {name: values[0] for name, values in ends.items()}
    for name, values in ends.items():
        for value in values:
            found = Settings.of(with_values(settings, usual | {name: value}))
    return found


@contextmanager
def silent() -> Iterator[Any]:
    """Optuna, without its own report of each trial."""
    try:
        import optuna
    except ImportError:
        raise FedmapError(
            "a search needs Optuna; install it with: pip install 'fedmap[search]'"
        ) from None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield optuna
    finally:
        optuna.logging.set_verbosity(before)


def new_study(optuna: Any, prune: str, rounds: int, seeds: int, seed: int) -> Any:
    """A study that asks the same whenever it is answered the same."""
    pruner = {
        "median": lambda: optuna.pruners.MedianPruner(FREE, n_warmup_steps=-(-rounds // 3)),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(
            min_resource=max(rounds // 9, 1), max_resource=rounds * seeds
        ),
        "none": optuna.pruners.NopPruner,
    }[prune]()
    sampler = optuna.samplers.TPESampler(seed=seed)
    # Hyperband divides trials by the study's name
    return optuna.create_study(
        direction="maximize", sampler=sampler, pruner=pruner, study_name="fedmap"
    )


def drawn(trial: Any, name: str, ways: Ways) -> Any:
    """The value that a trial has of one parameter."""
    if not isinstance(ways, Range):
        return trial.suggest_categorical(name, list(ways))
    if ways.whole:
        return trial.suggest_int(name, ways.low, ways.high, log=ways.log)
    return rounded(trial.suggest_float(name, ways.low, ways.high, log=ways.log))


class Attempt:
    """One combination: its runs, one for each seed, and what they reach."""

    def __init__(
        self, trial: Any, runs: Sequence[RunWork], out: Path, begin: Begin, watch: Watch
    ) -> None:
        self._trial = trial
        self._runs = runs
        self._out = out
        self._begin = begin
        self._watch = watch
        self._before: list[float] = []  # what the seeds before have reached
        self._best = 0.0  # round's score of the run that goes on
        self.round = 0  # the last of it

    @property
    def reached(self) -> float:
        """The mean over the seeds so far."""
        return mean([*self._before, self._best])

    def go(self, slots: Sequence[Slot]) -> float:
        """The score; a PrunedError where it falls behind."""
        for run, slot in zip(self._runs, slots, strict=True):
            slot.label, slot.name = run.label, run.name
            self._best, self.round = 0.0, 0
            self._one(run, slot)
            if run.diverged(self._out):
                return 0.0
            self._before.append(self._best)
        return mean(self._before)

    def _one(self, run: RunWork, slot: Slot) -> None:
        mark, on_step = self._out / run.name / "pruned", self._begin(slot)
        run.refuse_other_data(self._out)
        before = run.records(self._out)
        try:
            for record in before:
                self._after(record)
            if run.done(self._out):
                self._watch.finished(slot)
            else:
                mark.unlink(missing_ok=True)
                run.go(self._out, on_step, self._after)
        except PrunedError:
            if self.round > len(before):
                on_step(slot.steps, "pruned")
            else:
                self._watch.finished(slot, "pruned before")
            sentence = f"it fell behind after round {self.round}: {100 * self._best:.1f} %\n"
            write_atomically(mark, sentence.encode())
            raise

    def _after(self, record: Record) -> None:
        """Report a round, once."""
        value = score(record)
        if value is None:
            raise FedmapError(
                "no client has enough samples to hold some out, so a search cannot choose; give a "
                "larger --validation, or a grid without --trials"
            )
        if record["round"] <= self.round:
            return
        self.round, self._best = record["round"], max(self._best, value)
        rounds, seeds = self._runs[0].steps, len(self._runs)
        step = len(self._before) * rounds + self.round
        self._trial.report(self.reached, step)
        if step < seeds * rounds and self._trial.should_prune():
            raise PrunedError
