"""Methods side by side: the same federation for each seed, one table, one picture."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmap.errors import FedmapError
from fedmap.experiment.plan import carry_out
from fedmap.experiment.progress import OnProgress, Progress, Watch
from fedmap.experiment.runs import RunWork, federation_of
from fedmap.methods import AnyMethod
from fedmap.notebook import Move, frame, progress_bar
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

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return self.table().html()

    def to_pandas(self) -> Any:
        """The runs as a pandas data frame, one row each."""
        return frame(self.json())

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
    methods: Sequence[str | type[AnyMethod]],
    *,
    seeds: Sequence[int] = (0,),
    out: Path | str = "runs/compare",
    on_progress: OnProgress | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Comparison:
    """Train with each method (a name, FILE.py:CLASS, or a class) and each seed; the methods of a
    seed have the same federation.

    Keyword arguments are the settings of `fedmap compare --help`. Every run is kept in a folder
    below `out`: started again, a comparison skips what is done. `progress` shows a bar; where it is
    not given, a notebook has one."""
    given = {method: settings | {"method": method} for method in dict.fromkeys(methods)}
    known = {method: Settings.of(chosen) for method, chosen in given.items()}
    # two files may have a class of the same name
    count = Counter(settings.label for settings in known.values())
    contenders = {
        one.label if count[one.label] == 1 else method_words(method, one): given[method]
        for method, one in known.items()
    }
    with progress_bar("all together", 1, progress) as move:
        return carried_out(contenders, seeds, Path(out), on_progress or moving(move))


def moving(move: Move) -> OnProgress:
    """Shows the progress of an experiment on one bar."""

    def show(progress: Progress) -> None:
        words = f"{progress.label} {progress.step}/{progress.steps}  {progress.now}"
        move(progress.share, words)

    return show


def method_words(method: str | type[AnyMethod], settings: Settings) -> str:
    """What to call a method whose class has the same name as another's."""
    return method if isinstance(method, str) else settings.method


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
