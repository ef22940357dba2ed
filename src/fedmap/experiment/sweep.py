"""One method with every combination of some parameter values."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

from fedmap.client import Training
from fedmap.errors import FedmapError
from fedmap.experiment.compare import Comparison, carried_out, moving
from fedmap.experiment.progress import OnProgress
from fedmap.methods import AnyMethod, find_method
from fedmap.notebook import progress_bar
from fedmap.simulate.choose import score
from fedmap.simulate.settings import Settings


class Sweep(Comparison):
    """Runs of one method with different values, of which the best is chosen without the tests."""

    @property
    def scores(self) -> dict[str, float]:
        """By label, the mean over seeds of the score on held-out samples, where no run diverged."""
        found = {
            label: [score(run.final) for run in runs]
            for label, runs in self.results.items()
            if label not in self.diverged
        }
        known = {label: [s for s in of if s is not None] for label, of in found.items()}
        return {label: mean(of) for label, of in known.items() if of}

    @property
    def best(self) -> str | None:
        """The label with the highest score; None where nothing is held out."""
        return max(self.scores, key=lambda label: self.scores[label], default=None)

    def sentences(self) -> list[str]:
        """Which values are the best, or why none are called so."""
        if self.best is None:
            return [
                "no samples are held out, so no setting is called the best; with --validation 0.1 "
                "it is chosen on a part of the training samples"
            ]
        reached = f"{100 * self.scores[self.best]:.1f} %"
        return [f"the best on held-out samples is {self.best}, with {reached}"]


def sweep(
    method: str | type[AnyMethod],
    grid: Mapping[str, Sequence[Any]],
    *,
    seeds: Sequence[int] = (0,),
    out: Path | str = "runs/sweep",
    on_progress: OnProgress | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Sweep:
    """Train with every combination of the grid's values and with every seed.

    A name of the grid is a parameter of the method, or else a setting of local training such as
    `lr`. The results are labeled `map[alpha=0.5,weight=0.1]`. Other keyword arguments are the
    settings of `fedmap sweep --help`. With `validation` the best setting is named, by samples that
    are neither trained nor tested on. Every run is kept in a folder below `out`: started again, a
    sweep skips what is done. `progress` shows a bar; where it is not given, a notebook has one."""
    if not grid:
        raise FedmapError("the grid is empty; give at least one parameter with its values")
    for name, values in grid.items():
        if not values:
            raise FedmapError(f"the grid has no value for {name!r}; give at least one")
    contenders = {}
    for combination in product(*grid.values()):
        chosen = dict(zip(grid, combination, strict=True))
        given = with_values(settings | {"method": method}, chosen)
        words = ",".join(f"{name}={value}" for name, value in chosen.items())
        contenders[f"{Settings.of(given).label}[{words}]"] = given
    with progress_bar("all together", 1, progress) as move:
        done = carried_out(contenders, seeds, Path(out), on_progress or moving(move))
    return Sweep(done.runs, done.folder)


def with_values(settings: dict[str, Any], chosen: dict[str, Any]) -> dict[str, Any]:
    """The settings with the chosen values, each in its place."""
    own = find_method(settings["method"]).Params.model_fields
    training = {
        name: value
        for name, value in chosen.items()
        if name in Training.model_fields and name not in own
    }
    params = {name: value for name, value in chosen.items() if name not in training}
    return settings | training | {"params": settings.get("params", {}) | params}
