"""Methods side by side: the same federation for each seed, one table, one picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import Any

from fedmap.errors import FedmapError
from fedmap.experiment.lists import Runs, carried_out, moving, runs_of
from fedmap.experiment.progress import OnProgress
from fedmap.experiment.runs import MakeCallback, RunWork, federation_of
from fedmap.methods import AnyMethod, parameters_of, variant
from fedmap.notebook import frame, progress_bar, wanted
from fedmap.registry import nearest
from fedmap.report import plots
from fedmap.report.clients import (
    Served,
    by_client,
    clients_table,
    gains,
    losers,
    over_seeds,
    points,
    sentences,
    served,
)
from fedmap.report.page import Contents, of_results, write_page
from fedmap.report.table import NUMBERS, Row, Table, as_json, as_table, rows
from fedmap.simulate.result import Result
from fedmap.simulate.settings import Settings, read_federation


@dataclass(frozen=True)
class Comparison:
    """Runs that are done, below one folder: by label, one for each seed."""

    runs: Runs
    folder: Path

    @cached_property
    def results(self) -> dict[str, list[Result]]:
        """The results by label, without the runs that have none because they diverged."""
        return {
            label: [run.result(self.folder) for run in runs if run.finished(self.folder)]
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
        """One row for each label, over its seeds; it says where runs diverged, and with `local`
        among the methods what clients gain over it."""
        return [self._whole(row) for row in rows(self.results)]

    def table(self) -> Table:
        """The rows as a table, which can be Markdown, CSV or LaTeX."""
        return as_table(self.rows(), "Accuracy in %")

    def clients(self) -> Table:
        """One line for each method, seed and client, by name: what it has from training alone (with
        `local` among the methods), from the global model and from its own, and what it gains."""
        return clients_table(self._served)

    def by_client(self) -> Table:
        """One line for each client, with its means over seeds: alone, and with each method. There
        is none where each seed draws other clients."""
        return by_client(self._clients if self._same_clients else [])

    def sentences(self) -> list[str]:
        """What came out, in plain words."""
        pooled = [
            label
            for label, runs in self.results.items()
            if any(run.settings.method_class.pooled for run in runs)
        ]
        return sentences(self._clients, pooled)

    def tables(self) -> dict[str, Path]:
        """Write the methods, the clients, and all numbers of each run, each as Markdown, CSV and
        LaTeX; where the CSV files are."""
        entries = self.json()
        names = list(dict.fromkeys(name for entry in entries for name in entry))
        lines = [[words(entry.get(name)) for name in names] for entry in entries]
        found = {
            "methods": self.table(),
            "clients": self.clients(),
            "runs": Table("All numbers of each run", names, lines),
        }
        for name, table in found.items():
            table.write(self.folder / name)
        return {name: self.folder / f"{name}.csv" for name in found}

    def report(self, out: Path | str | None = None, baseline: str | None = None) -> Path:
        """Write one HTML page of all this, beside the runs if not told where; where it is. Clients
        are compared with the baseline, one of these methods."""
        found = {label: runs for label, runs in self.results.items() if runs}
        contents = Contents(of_results(found), baseline)
        return write_page(contents, Path(out or self.folder / "report.html"))

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
            | dict.fromkeys(NUMBERS)
            | {"diverged": (self.folder / run.name / "diverged").read_text().strip()}
            for label, runs in self.diverged.items()
            for run in runs
        ]
        entries = as_json(self.results)
        for entry in entries:
            who = entry["method"], entry["seed"]
            found = gains([one for one in self._served if (one.method, one.seed) == who])
            entry["gain_over_local"] = sum(found) / len(found) if found else None
            entry["clients_that_lose"] = sum(gain < 0 for gain in found) if found else None
        return entries + lost

    def pictures(self) -> dict[str, Path]:
        """Draw the curves, and who holds what with the first seed; where the pictures are."""
        first = next(iter(self.runs.values()))[0]
        federation = federation_of(first.settings)
        return {
            "curves": plots.curves(self.results, self.folder / "curves.png"),
            "partition": plots.holdings(federation, self.folder / "partition.png"),
        }

    @cached_property
    def _served(self) -> list[Served]:
        return served(self.results)

    @cached_property
    def _same_clients(self) -> bool:
        """Does every seed have the same clients? Those that the data names, or of one partition."""
        first = next(iter(self.runs.values()))
        one_partition = len({run.settings.partition_seed for run in first}) == 1
        kept = self.folder / first[0].name / "run.toml"
        return one_partition or "clients" in read_federation(kept)

    @cached_property
    def _clients(self) -> list[Served]:
        """Each client once, over its seeds; where seeds have different ones, all of them."""
        return over_seeds(self._served) if self._same_clients else self._served

    def _whole(self, row: Row) -> Row:
        name, lost = row.method, len(self.diverged.get(row.method, []))
        found = gains([one for one in self._clients if one.method == name])
        if lost:
            name += f" ({lost} of {len(self.runs[row.method])} diverged)"
        if not found:
            return row._replace(method=name)
        return row._replace(method=name, gain=points(found), losers=losers(found))


def words(value: object) -> str:
    """A number or a name as a cell; nothing where there is none."""
    return "" if value is None else str(value)


def compare(
    methods: Sequence[str | type[AnyMethod]],
    *,
    seeds: Sequence[int] = (0,),
    out: Path | str = "runs/compare",
    on_progress: OnProgress | None = None,
    progress: bool | None = None,
    callbacks: Sequence[MakeCallback] = (),
    **settings: Any,
) -> Comparison:
    """Train with each method (a name, FILE.py:CLASS, or a class) and each seed; the methods of a
    seed have the same federation. A name may come with parameters: `map[alpha=0.5]`; `params` are
    for all methods that have them.

    Keyword arguments are the settings of `fedmap compare --help`. Every run is kept in a folder
    below `out`: started again, a comparison skips what is done. `progress` shows a bar; where it is
    not given, a notebook has one. `callbacks` are classes (or functions that make one), because
    each run has its own: `callbacks=[fedmap.track.TensorBoard]`."""
    runs = compared(methods, seeds, callbacks, **settings)
    with progress_bar("all together", 1, progress) as move:
        carried_out(runs, Path(out), on_progress or (moving(move) if wanted(progress) else None))
    return Comparison(runs, Path(out))


def compared(
    methods: Sequence[str | type[AnyMethod]],
    seeds: Sequence[int],
    callbacks: Sequence[MakeCallback] = (),
    **settings: Any,
) -> Runs:
    """The runs of a comparison, with all settings checked and nothing done."""
    if isinstance(methods, str):
        raise FedmapError(f"methods is {methods!r}; give a list, such as ['local', 'map']")
    params = settings.get("params") or {}
    parsed: list[tuple[str | type[AnyMethod], dict[str, Any]]] = [
        variant(one) if isinstance(one, str) else (one, {}) for one in methods
    ]
    known = {name for method, _ in parsed for name in parameters_of(method)}
    for name in params if parsed else ():
        if name not in known:
            there = nearest(name, known) if known else "they have none"
            raise FedmapError(f"no method here has a parameter {name!r}; {there}")
    contenders: dict[str, dict[str, Any]] = {}
    for one, (method, own) in zip(methods, parsed, strict=True):
        has = parameters_of(method)
        shared = {name: value for name, value in params.items() if name in has}
        given = settings | {"method": method, "params": shared | own}
        words = one.removeprefix(str(method)) if isinstance(one, str) else ""
        contenders.setdefault(label_of(given, words, contenders), given)
    return runs_of(contenders, seeds, callbacks)


def label_of(given: dict[str, Any], words: str, taken: Mapping[str, dict[str, Any]]) -> str:
    """What a table calls a method with these words behind it. Two files may have a class of the
    same name: then the second is called by its whole name, and if that is taken too, by a number
    behind it."""
    settings = Settings.of(given)
    whole = f"{settings.method}{words}"
    numbered = (f"{whole} ({number})" for number in count(2))
    names = chain([settings.label + words, whole], numbered)
    return next(name for name in names if name not in taken or taken[name] == given)
