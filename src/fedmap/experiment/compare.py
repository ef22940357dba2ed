"""Methods side by side: the same federation for each seed, one table, one picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmap.errors import FedmapError
from fedmap.experiment.plan import carry_out
from fedmap.experiment.progress import OnProgress, Watch
from fedmap.experiment.runs import RunWork, federation_of
from fedmap.params import value
from fedmap.report import plots
from fedmap.report.table import COLUMNS, Row, Table, as_json, as_table, rows
from fedmap.simulate.result import Result
from fedmap.simulate.settings import Settings


@dataclass(frozen=True)
class Comparison:
    """Runs that are done, below one folder: by label, one for each seed."""

    runs: dict[str, list[RunWork]]
    folder: Path

    @cached_property
    def results(self) -> dict[str, list[Result]]:
        """The results by label, without the runs that diverged."""
        return {
            label: [run.result(self.folder) for run in runs if not run.diverged(self.folder)]
            for label, runs in self.runs.items()
        }

    @cached_property
    def diverged(self) -> dict[str, list[RunWork]]:
        """By label, the runs whose training left the finite numbers."""
        lost = {
            label: [run for run in runs if run.diverged(self.folder)]
            for label, runs in self.runs.items()
        }
        return {label: runs for label, runs in lost.items() if runs}

    def rows(self) -> list[Row]:
        """One row for each label, over its seeds; it says where runs diverged."""
        return [row._replace(method=self._with_lost(row.method)) for row in rows(self.results)]

    def table(self) -> Table:
        """The rows as a table, which can be Markdown, CSV or LaTeX."""
        return as_table(self.rows(), "Accuracy in %")

    def json(self) -> list[dict[str, Any]]:
        """The same for scripts: one entry for each run."""
        lost = [
            {"method": label, "seed": run.settings.seed, "folder": str(self.folder / run.name)}
            | dict.fromkeys(COLUMNS)
            | {"diverged": (self.folder / run.name / "diverged").read_text().strip()}
            for label, runs in self.diverged.items()
            for run in runs
        ]
        return as_json(self.results) + lost

    def pictures(self) -> dict[str, Path]:
        """Draw the curves, and who holds what with the first seed; where the pictures are."""
        first = next(iter(self.runs.values()))[0]
        federation = federation_of(first.settings)
        return {
            "curves": plots.curves(self.results, self.folder / "curves.png"),
            "partition": plots.holdings(federation, self.folder / "partition.png"),
        }

    def _with_lost(self, label: str) -> str:
        lost = len(self.diverged.get(label, []))
        return f"{label} ({lost} of {len(self.runs[label])} diverged)" if lost else label


def compare(
    methods: Sequence[str],
    *,
    seeds: Sequence[int] = (0,),
    out: Path | str = "runs/compare",
    on_progress: OnProgress | None = None,
    **settings: Any,
) -> Comparison:
    """Train with each method and each seed; the methods of a seed have the same federation. A
    method may come with parameters: `map[alpha=0.5]`.

    Keyword arguments are the settings of `fedmap compare --help`. Every run is kept in a folder
    below `out`: started again, a comparison skips what is done."""
    contenders: dict[str, dict[str, Any]] = {}
    for text in dict.fromkeys(methods):
        method, params = variant(text)
        given = settings | {"method": method, "params": settings.get("params", {}) | params}
        label = Settings.of(given).label + text.removeprefix(method)
        # two files may have a class of the same name
        contenders[text if label in contenders else label] = given
    return carried_out(contenders, seeds, Path(out), on_progress)


def variant(text: str) -> tuple[str, dict[str, Any]]:
    """A method with its parameters: `map[alpha=0.5,weight=0.1]`, or just `map`."""
    method, bracket, rest = text.partition("[")
    if not bracket:
        return text, {}
    pairs = [pair.partition("=") for pair in rest.removesuffix("]").split(",")]
    if not rest.endswith("]") or not all(name and equals for name, equals, _ in pairs):
        raise FedmapError(f"{text!r} is not of the form METHOD[NAME=VALUE,NAME=VALUE]")
    return method, {name.strip(): value(right.strip()) for name, _, right in pairs}


def carried_out(
    contenders: Mapping[str, dict[str, Any]],
    seeds: Sequence[int],
    out: Path,
    on_progress: OnProgress | None,
) -> Comparison:
    """Every contender (settings by label) with every seed. All settings are checked before the
    first run begins."""
    if not contenders or not seeds:
        raise FedmapError(f"there is no {'seed' if contenders else 'method'} to run; give one")
    if any("seed" in given for given in contenders.values()):
        raise FedmapError("`seed` is of a single run; give `seeds`, a list of whole numbers")
    seeds = list(dict.fromkeys(seeds))
    runs = {
        label: [
            RunWork(
                Settings.of(given | {"seed": seed}),
                f"{label} #{seed}" if len(seeds) > 1 else label,
            )
            for seed in seeds
        ]
        for label, given in contenders.items()
    }
    # seed by seed, so that the runs of a federation follow each other
    work = [of_a_label[i] for i in range(len(seeds)) for of_a_label in runs.values()]
    watch = Watch([(run, run.steps) for run in work], on_progress or (lambda progress: None))
    carry_out(work, out, watch.of)
    return Comparison(runs, out)
