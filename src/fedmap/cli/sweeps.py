"""What `sweep` does once its options are read: what to try comes from options, a file and the
paper's groups; at the end stands the command of the best."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fedmap.cli import train
from fedmap.cli.parsing import default_workers, say
from fedmap.cli.show import duration
from fedmap.errors import FedmapError
from fedmap.experiment import sweep as library
from fedmap.experiment.search import VALIDATION, held_out, probe
from fedmap.experiment.space import space_of
from fedmap.experiment.sweep import Grid, Sweep, combinations, swept
from fedmap.paper.groups import GROUPS
from fedmap.report.command import command
from fedmap.simulate.settings import read_toml

MORE = ("grid", "groups", "trials", "prune", "seeds")  # what a file has beside settings


class Asked(NamedTuple):
    """What the user wants to try. What is None is not said."""

    grid: dict[str, Any]
    groups: bool
    trials: int | None
    prune: str | None
    seeds: list[int] | None
    settings: dict[str, Any]

    def with_file(self, file: Path, trust: bool) -> "Asked":
        """With what a file says besides; options win."""
        found = read_toml(file, self.settings, trust)
        more = {name: found.pop(name) for name in MORE if name in found}
        params = found.get("params", {}) | self.settings.get("params", {})
        grid = more.get("grid", {})
        if not isinstance(grid, dict):
            raise FedmapError(f"{file}: grid is {grid!r}, but must be a table of values: [grid]")
        return Asked(
            {name: listed(ways) for name, ways in grid.items()} | self.grid,
            self.groups or bool(more.get("groups")),
            self.trials or whole(more.get("trials"), "trials", file),
            self.prune or more.get("prune"),
            self.seeds or [whole(seed, "seeds", file) or 0 for seed in more.get("seeds", [0])],
            found | {"params": params},
        )

    @property
    def method(self) -> str:
        """The method's name."""
        return str(self.settings.get("method") or "map")

    @property
    def others(self) -> dict[str, Any]:
        """The settings without the method."""
        workers = {"workers": default_workers(self.settings.get("device"))}
        return workers | {n: value for n, value in self.settings.items() if n != "method"}

    def tried(self) -> Grid:
        """The grid; with groups, each of the paper's with each combination."""
        if not self.groups:
            return self.grid
        if self.trials:
            raise FedmapError("--groups are tried one by one; leave out --trials")
        if self.method not in GROUPS:
            raise FedmapError(
                f"the paper has no groups of parameters for {self.method}; it has some for "
                f"{', '.join(sorted(GROUPS))}"
            )
        own = combinations(self.grid) if self.grid else [{}]
        return [group | values for group in GROUPS[self.method] for values in own]


def listed(ways: Any) -> Any:
    """A single value as a list of one; a text with dots is a range."""
    return ways if isinstance(ways, list) or (isinstance(ways, str) and ".." in ways) else [ways]


def whole(value: Any, name: str, file: Path) -> int | None:
    """A whole number of a file, if it is there."""
    if value is not None and type(value) is not int:
        raise FedmapError(f"{file}: {name} has {value!r}; allowed: whole numbers")
    return value


def sweep(asked: Asked, out: Path, quiet: bool, json: bool, track: list[str] | None) -> None:
    """Carry it out, show it, and say the command of the best."""
    seeds = asked.seeds or [0]
    if asked.trials and "validation" not in asked.settings and not quiet:
        say(f"chosen on {VALIDATION:.0%} of each client's training samples (--validation)")
    experiment = partial(
        library.sweep,
        asked.method,
        asked.tried(),
        trials=asked.trials,
        prune=asked.prune or "median",
        seeds=seeds,
        **asked.others,
    )

    def command_of_the_best(found: Sweep) -> list[str]:
        again = command(found.runs[found.best][0].settings) if found.best else ""
        return [f"the best again: {again}"] if again else []

    train.many_runs(experiment, out, quiet, json, track, command_of_the_best)


def show_plan(asked: Asked, out: Path) -> None:
    """What would be done. Of a search, the values are not known before; only what it costs."""
    seeds = asked.seeds or [0]
    if asked.trials is None:
        found = swept(asked.method, asked.tried(), seeds, out=out, **asked.others)
        train.show_plan(found.runs, out)
        return
    space = space_of(asked.grid)
    others = held_out(asked.others)
    probe(others | {"method": asked.method}, space)
    first = [{name: ways[0] for name, ways in space.items()}]
    planned = train.show_plan(
        swept(asked.method, first, seeds, out=out, **others).runs, out / "none"
    )
    most = duration(asked.trials * planned.seconds)
    print(f"{asked.trials} such trials: at most {most}; what is done is not done again")
