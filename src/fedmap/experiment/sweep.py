"""One method with many values of its parameters: every combination of a grid, or those that a
search tries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from fedmap.client import Training
from fedmap.errors import FedmapError
from fedmap.experiment.compare import Comparison
from fedmap.experiment.lists import Runs, carried_out, moving, runs_of
from fedmap.experiment.progress import OnProgress
from fedmap.experiment.runs import MakeCallback
from fedmap.experiment.space import Range, Space, in_words, space_of
from fedmap.methods import AnyMethod, find_method
from fedmap.notebook import progress_bar, wanted
from fedmap.report.sweeps import Tried, sweep_picture, tried_table
from fedmap.report.table import Row, Table
from fedmap.simulate.choose import score
from fedmap.simulate.settings import Settings

Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Sweep(Comparison):
    """Runs of one method with different values, of which the best is chosen without the tests. The
    best is the first where one is called so."""

    chosen: dict[str, dict[str, Any]] = field(default_factory=dict)  # the values, by label
    given: dict[str, dict[str, Any]] = field(default_factory=dict)  # all settings, by label
    pruned: dict[str, tuple[int, float]] = field(default_factory=dict)  # in which round, its score

    @cached_property
    def scores(self) -> dict[str, float]:
        """By label, the mean over seeds of the score on held-out samples, where every run came to
        its end."""
        found = {
            label: [score(run.final) for run in runs]
            for label, runs in self.results.items()
            if label not in self.diverged and len(runs) == len(self.runs[label])
        }
        known = {label: [s for s in of if s is not None] for label, of in found.items()}
        return {label: mean(of) for label, of in known.items() if of and label not in self.pruned}

    @property
    def best(self) -> str | None:
        """The label with the highest score; None where nothing is held out."""
        return max(self.scores, key=lambda label: self.scores[label], default=None)

    @property
    def best_settings(self) -> dict[str, Any] | None:
        """What to give to `fedmap.run` for the best, beside the federation and a seed."""
        return None if self.best is None else self.given[self.best]

    def sentences(self) -> list[str]:
        """Which values are the best, or why none are called so."""
        if self.best is None:
            return [
                "no samples are held out, so no setting is called the best; with --validation 0.1 "
                "it is chosen on a part of the training samples"
            ]
        reached = f"{100 * self.scores[self.best]:.1f} %"
        found = [f"the best on held-out samples is {self.best}, with {reached}"]
        if self.pruned:
            found.append(f"{len(self.pruned)} of {len(self.runs)} were stopped early (pruned)")
        return found

    def tried(self) -> list[Tried]:
        """What was tried, and what came of it."""
        return [
            Tried(
                values,
                self.scores.get(label),
                [run.final for run in self.results[label]],
                self._outcome(label),
            )
            for label, values in self.chosen.items()
        ]

    def tables(self) -> dict[str, Path]:
        """Those of a comparison, and one with a column for each parameter."""
        tried_table(self.tried()).write(self.folder / "sweep")
        return {"sweep": self.folder / "sweep.csv"} | super().tables()

    def pictures(self) -> dict[str, Path]:
        """Those of a comparison, and what came of the values: a line, a heat map, or parallel
        coordinates."""
        picture = sweep_picture(self.tried(), self.folder / "sweep.png")
        return ({"sweep": picture} if picture else {}) | super().pictures()

    def by_client(self) -> Table:
        """None: clients are in the table of all runs' clients, and there may be many settings."""
        return Table("", [], [])

    def best_first(self) -> "Sweep":
        """The same in the order of the scores; what has none stays behind the others."""
        if not self.scores:
            return self

        def place(label: str) -> tuple[bool, float]:
            reached = self.scores.get(label, self.pruned.get(label, (0, 0.0))[1])
            return label not in self.scores, -reached

        runs = {label: self.runs[label] for label in sorted(self.runs, key=place)}
        chosen = {label: self.chosen[label] for label in runs}
        return Sweep(runs, self.folder, chosen, self.given, self.pruned)

    def _outcome(self, label: str) -> str:
        if label in self.pruned:
            return f"pruned in round {self.pruned[label][0]}"
        return "diverged" if label in self.diverged else "done"

    def _whole(self, row: Row) -> Row:
        found = super()._whole(row)
        if row.method not in self.pruned:
            return found
        name = f"{row.method} ({self._outcome(row.method)})"
        return found._replace(method=name, held_out=f"{100 * self.pruned[row.method][1]:.1f}")


def sweep(
    method: str | type[AnyMethod],
    grid: Grid,
    *,
    trials: int | None = None,
    prune: str = "median",
    seeds: Sequence[int] = (0,),
    out: Path | str = "runs/sweep",
    on_progress: OnProgress | None = None,
    progress: bool | None = None,
    callbacks: Sequence[MakeCallback] = (),
    **settings: Any,
) -> Sweep:
    """Train with every combination of the grid's values and with every seed.

    A name of the grid is a parameter of the method, or else a setting of local training such as
    `lr`. The results are labeled `map[alpha=0.5,weight=0.1]`. A list of dictionaries is a list of
    combinations. Other keyword arguments are the settings of `fedmap sweep --help`. With
    `validation` the best setting is named, by samples that are neither trained nor tested on. Every
    run is kept in a folder below `out`: started again, a sweep skips what is done. `progress` shows
    a bar; where it is not given, a notebook has one. `callbacks` are as those of `compare`.

    With `trials` so many combinations are tried, each chosen by Optuna from what the ones before
    reached on held-out samples; values may then be ranges, such as "0.1..0.9" or
    "1e-3..1e-1:log". `prune` (median, hyperband or none) stops runs early that fall behind."""
    given, out = settings | {"method": method}, Path(out)
    with progress_bar("all together", 1, progress) as move:
        show = on_progress or (moving(move) if wanted(progress) else None)
        if trials is not None:
            from fedmap.experiment.search import search

            space = space_of(grid if isinstance(grid, Mapping) else {})
            return search(given, space, trials, prune, seeds, out, show, callbacks).best_first()
        found = swept(method, grid, seeds, callbacks, out=out, **settings)
        carried_out(found.runs, out, show)
    return found.best_first()


def swept(
    method: str | type[AnyMethod],
    grid: Grid,
    seeds: Sequence[int],
    callbacks: Sequence[MakeCallback] = (),
    *,
    out: Path,
    **settings: Any,
) -> Sweep:
    """The runs of a grid, with all settings checked and nothing done."""
    chosen, given = {}, {}
    for values in combinations(grid):
        whole = with_values(settings | {"method": method}, values)
        label = f"{Settings.of(whole).label}[{in_words(values)}]"
        chosen[label], given[label] = values, whole
    runs: Runs = runs_of(given, seeds, callbacks)
    return Sweep(runs, out, chosen, given)


def combinations(grid: Grid) -> list[dict[str, Any]]:
    """All that a grid asks for."""
    if not grid:
        raise FedmapError("the grid is empty; give at least one parameter with its values")
    if not isinstance(grid, Mapping):
        return [dict(values) for values in grid]
    space: Space = space_of(grid)
    for name, values in space.items():
        if isinstance(values, Range):
            raise FedmapError(
                f"{name} is a range, from which values are drawn: say how many combinations to try "
                "(--trials 20), or list its values"
            )
    return [dict(zip(space, values, strict=True)) for values in product(*space.values())]


def with_values(settings: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """The settings with the chosen values, each in its place."""
    own = find_method(settings["method"]).Params.model_fields
    training = {
        name: value
        for name, value in chosen.items()
        if name in Training.model_fields and name not in own
    }
    params = {name: value for name, value in chosen.items() if name not in training}
    return settings | training | {"params": (settings.get("params") or {}) | params}
