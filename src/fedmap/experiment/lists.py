"""Several runs with labels, one for each seed: from settings to work, and carrying it out."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Protocol, TypeVar

from fedmap.errors import FedmapError
from fedmap.experiment.plan import carry_out
from fedmap.experiment.progress import Labeled, OnProgress, Progress, Seconds, Watch
from fedmap.experiment.runs import MakeCallback, RunWork
from fedmap.experiment.work import OnStep
from fedmap.notebook import Move
from fedmap.simulate.folder import write_atomically
from fedmap.simulate.settings import Settings

Runs = dict[str, list[RunWork]]  # by label, one for each seed
OVERVIEW = "experiment.json"  # what an experiment consists of, for who looks on


def runs_of(
    contenders: Mapping[str, dict[str, Any]],
    seeds: Sequence[int],
    callbacks: Sequence[MakeCallback] = (),
) -> Runs:
    """Every contender (settings by label) with every seed, all settings checked."""
    if not contenders or not seeds:
        raise FedmapError(f"there is no {'seed' if contenders else 'method'} to run; give one")
    if any("seed" in given for given in contenders.values()):
        raise FedmapError("`seed` is of a single run; give `seeds`, a list of whole numbers")
    seeds = list(dict.fromkeys(seeds))

    def run(label: str, given: dict[str, Any], seed: int) -> RunWork:
        shown = f"{label} #{seed}" if len(seeds) > 1 else label
        return RunWork(Settings.of(given | {"seed": seed}), shown, callbacks=callbacks)

    return {
        label: [run(label, given, seed) for seed in seeds] for label, given in contenders.items()
    }


def in_order(runs: Runs) -> list[RunWork]:
    """Seed by seed, so that the runs of a federation follow each other."""
    return [run for of_a_seed in zip(*runs.values(), strict=True) for run in of_a_seed]


def unseen(progress: Progress) -> None:
    """The progress of what nobody looks at."""


def carried_out(runs: Runs, out: Path, on_progress: OnProgress | None) -> None:
    """Do all that is not done yet. How long it will take is measured only where somebody looks."""
    work = in_order(runs)
    begun = any_begun(out)
    before = [steps_before(run, out) if begun else 0 for run in work]
    left = [run for run, done in zip(work, before, strict=True) if done < run.steps]
    seconds = foreseen(runs, left if on_progress else [])
    known = [(run, seconds[id(run)]) for run in work]
    watch = Watch(known, on_progress or unseen, before=before)
    carry_out(work, out, noted(work, out, watch.of))


def any_begun(out: Path) -> bool:
    """Is there any run? Else it need not be asked of each, whose name needs its federation."""
    return any(out.glob("*/run.toml"))


def steps_before(run: RunWork, out: Path) -> int:
    """How many of a run's rounds were done before, on the data that is there now."""
    run.refuse_other_data(out)
    return run.steps_done(out)


def foreseen(runs: Runs, left: Sequence[RunWork]) -> dict[int, Seconds]:
    """What each run will take, by its id: measured for one seed of each label. Where that fails,
    the run itself will say why; where nothing is left, it does not matter."""
    found: dict[str, Seconds] = {}
    ids = {id(run) for run in left}
    for label, of_a_label in runs.items():
        for run in [run for run in of_a_label if id(run) in ids][:1]:
            try:
                found[label] = Seconds(run.seconds_a_step(), run.seconds_at_end())
            except Exception:
                continue
    steps = [seconds.step for seconds in found.values()]
    usual = Seconds(mean(steps) if steps else 1.0)
    return {id(run): found.get(label, usual) for label, some in runs.items() for run in some}


class Named(Labeled, Protocol):
    """What is noted of a piece of work."""

    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=Named)


def noted(
    work: Sequence[Named], out: Path, on_step: Callable[[N], OnStep]
) -> Callable[[N], OnStep]:
    """The same function, which also notes in a file what all the work is, and the folder of each
    piece that has begun: `fedmap watch` reads it."""
    begun = any_begun(out)
    entries: dict[int, dict[str, Any]] = {
        id(piece): {
            "label": piece.label,
            "rounds": piece.steps,
            "folder": piece.name if begun and (out / piece.name).exists() else None,
        }
        for piece in work
    }

    def begin(piece: N) -> OnStep:
        entries[id(piece)] |= {"label": piece.label, "folder": piece.name}
        out.mkdir(parents=True, exist_ok=True)
        content = json.dumps(list(entries.values()), indent=1) + "\n"
        write_atomically(out / OVERVIEW, content.encode(), lasting=False)
        return on_step(piece)

    return begin


def moving(move: Move) -> OnProgress:
    """Shows the progress of an experiment on one bar."""

    def show(progress: Progress) -> None:
        words = f"{progress.label} {progress.step}/{progress.steps}  {progress.now}"
        move(progress.share, words)

    return show
