"""All methods on the same federations, ranked by both goals at once.

What was measured is kept beside this module, one line a run. A method of one's own is trained on
the same federations with the same seeds and finds its place among them."""

import csv
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from pydantic import TypeAdapter

from fedmap.errors import FedmapError
from fedmap.experiment.compare import Comparison, compare
from fedmap.experiment.progress import OnProgress
from fedmap.experiment.runs import RunWork
from fedmap.methods import METHODS, AnyMethod
from fedmap.report.clients import ALONE
from fedmap.report.plots import COLORS, bare, name_points
from fedmap.report.table import Table, percent
from fedmap.simulate.folder import Record
from fedmap.simulate.result import STEADY, Result
from fedmap.simulate.run import Run

BASELINES = (ALONE, "central")  # to compare with; they have no place
# Beside the methods with their defaults: methods that are switches of others (FedMR, FedETF's loss,
# FedSAM, FedLMD); what to use of MAP; and what most of its gain is, the download answering among
# the client's own classes, without any influence of local training.
VARIANTS = (
    "feddecorr[preset=fedmr]",
    "fedgela[loss=etf]",
    "fedlesam[direction=local]",
    "fedntd[preset=fedlmd]",
    "map[preset=own]",
    "map[preset=own,opinion=1]",
)
REFERENCE = "fedavg"  # whose time and bytes are 1
TIMED = 3  # rounds that are timed


class Board(NamedTuple):
    """Federations that methods are compared on."""

    line: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    best: int | None = None  # so many of the first board's best methods take part, else all


BOARDS = {
    "fashion-mini": Board(
        "The embedded part of Fashion-MNIST, 20 clients with missing classes, LeNet, 40 rounds",
        {"data": "fashion-mini", "net": "lenet", "clients": 20, "rounds": 40},
        (0, 1, 2, 3, 4),
    ),
    "cifar-10": Board(
        "12,000 images of CIFAR-10, 20 clients with missing classes, TFCNN, 30 rounds of 5 epochs, "
        "clip 100",
        {"data": "cifar-10", "samples": 12000, "net": "tfcnn", "clients": 20, "rounds": 30}
        | {"epochs": 5, "clip": 100.0},
        (0, 1, 2),
    ),
    "fashion-mnist": Board(
        "Fashion-MNIST at the paper's scale: 100 clients, LeNet, 150 rounds, clip 100",
        {"data": "fashion-mnist", "net": "lenet", "clip": 100.0},
        (0,),
        best=10,
    ),
}
FIRST = next(iter(BOARDS))


class Entry(NamedTuple):
    """One run of a board. Accuracies are shares of 1; None where a method has no such model."""

    method: str
    seed: int
    global_accuracy: float | None  # the mean of the last rounds
    personal_accuracy: float | None  # over all clients
    own_classes: float | None  # the same models, answering among the client's own classes
    losers: int | None  # clients whose personal model is worse than training alone
    clients: int
    seconds: float  # of the processor in a round, as many as FedAvg's are 1
    bytes_up: float  # a round, as much as FedAvg's is 1


ENTRIES = TypeAdapter(list[Entry])


class Place(NamedTuple):
    """A method on a board, over its seeds."""

    rank: float | None  # the mean of its ranks by both goals; None for a baseline
    entries: list[Entry]

    @property
    def method(self) -> str:
        return self.entries[0].method


def contenders(board: str) -> list[str]:
    """Who takes part: all methods, the variants and the baselines, or the best of the first
    board."""
    everybody = [*sorted(set(METHODS) - set(BASELINES)), *VARIANTS]
    if (most := BOARDS[board].best) is not None:
        ranked = [place.method for place in ranking(kept(FIRST)) if place.rank is not None]
        everybody = [*dict.fromkeys([REFERENCE, *ranked[:most]])]
    return [*everybody, *BASELINES]


def find_board(name: str) -> Board:
    """A board by its name."""
    if name not in BOARDS:
        raise FedmapError(f"there is no leaderboard {name!r}; there are: {', '.join(BOARDS)}")
    return BOARDS[name]


def kept(board: str) -> list[Entry]:
    """What was measured before, with the version that is installed."""
    find_board(board)
    file = files("fedmap.experiment").joinpath(f"boards/{board}.csv")
    return read(file.read_text()) if file.is_file() else []


def read(text: str) -> list[Entry]:
    """Entries from lines with commas; an empty cell is None."""
    lines = csv.DictReader(text.splitlines())
    return ENTRIES.validate_python(
        [{name: cell or None for name, cell in line.items()} for line in lines]
    )


def written(entries: Sequence[Entry]) -> str:
    """The lines that `read` reads."""
    lines = [["" if cell is None else str(cell) for cell in entry] for entry in entries]
    return Table("", list(Entry._fields), lines).csv()


def measured(comparison: Comparison, known: Sequence[Entry] = ()) -> list[Entry]:
    """The entries of a comparison that has FedAvg and `local` among its methods; runs that diverged
    have none. A round's time is measured now, but not where the same runs are known already."""
    found = {
        label: {run.settings.seed: run for run in runs}
        for label, runs in comparison.results.items()
    }
    entries = [
        entry(label, run, found[REFERENCE][seed], found[ALONE][seed])
        for label, runs in found.items()
        for seed, run in runs.items()
    ]
    timed = {one._replace(seconds=1.0): one.seconds for one in known}
    new = {one.method for one in entries if one not in timed}
    seconds = {label: seconds_a_round(comparison.runs[label][0]) for label in {REFERENCE, *new}}
    share = {label: round(seconds[label] / seconds[REFERENCE], 2) for label in new}
    return [
        one._replace(seconds=share[one.method] if one.method in new else timed[one])
        for one in entries
    ]


def entry(label: str, run: Result, reference: Result, alone: Result) -> Entry:
    """The numbers of one run, beside FedAvg and training alone with the same seed."""
    final = run.final
    mine, local = (one.final["personal_accuracy_per_client"] for one in (run, alone))
    pairs = [(a, b) for a, b in zip(mine, local, strict=True) if a is not None and b is not None]
    bytes_up, unit = (mean(r["bytes_up"] for r in one.rounds) for one in (run, reference))
    return Entry(
        label,
        run.settings.seed,
        final.get(f"global_accuracy_last_{STEADY}"),
        final.get("personal_accuracy_all_clients"),
        final.get("personal_accuracy_observed_all_clients"),
        None if label == ALONE or not pairs else sum(a < b for a, b in pairs),
        len(mine),
        1.0,
        round(bytes_up / unit, 2),
    )


class _Timed(Exception):  # noqa: N818 (no error: it ends a run whose first rounds were wanted)
    pass


def seconds_a_round(work: RunWork) -> float:
    """Of the processor, in this process, so that other work on the machine does not count: the
    fastest of a few rounds after the first."""
    marks: list[float] = []

    def mark(record: Record) -> None:
        marks.append(time.process_time())
        if len(marks) == TIMED:
            raise _Timed

    short = work.resolved.model_copy(update={"rounds": TIMED, "workers": 1, "engine": "local"})
    with suppress(_Timed):
        Run(short, work.federation).go(on_round=mark)
    return min(after - before for before, after in pairwise(marks))


def ranking(entries: Sequence[Entry]) -> list[Place]:
    """The methods by the mean of their two ranks, in the global and in the personal accuracy; the
    baselines come last. A method without one of the two models is last in that goal."""
    by_method: dict[str, list[Entry]] = {}
    for one in entries:
        by_method.setdefault(one.method, []).append(one)
    ranked = [method for method in by_method if method not in BASELINES]
    goals = [
        {method: over_seeds(by_method[method], goal) or 0.0 for method in ranked}
        for goal in ("global_accuracy", "personal_accuracy")
    ]
    places = [
        Place(mean(rank_in(goal, method) for goal in goals), by_method[method]) for method in ranked
    ]
    places.sort(key=lambda place: (place.rank, place.method))
    return places + [Place(None, by_method[name]) for name in BASELINES if name in by_method]


def over_seeds(entries: Sequence[Entry], name: str) -> float | None:
    """The mean of a number over the seeds; None where there is none."""
    known = [value for one in entries if (value := getattr(one, name)) is not None]
    return mean(known) if known else None


def rank_in(goal: dict[str, float], method: str) -> float:
    """1 for the best; methods with the same number share their ranks."""
    better = sum(value > goal[method] for value in goal.values())
    same = sum(value == goal[method] for value in goal.values())
    return better + (same + 1) / 2


HEAD = ["", "method", f"global, last {STEADY}", "personal", "own classes", "clients that lose"]
HEAD += ["time", "bytes up", "joint rank"]


def table(places: Sequence[Place], caption: str = "") -> Table:
    """A line for each method, the best first."""
    return Table(caption, HEAD, [line(number, place) for number, place in enumerate(places, 1)])


def line(number: int, place: Place) -> list[str]:
    """The cells of one method."""
    of = place.entries
    losers = [one.losers for one in of if one.losers is not None]
    clients = sum(one.clients for one in of)
    return [
        "" if place.rank is None else str(number),
        place.method,
        *(percent([getattr(one, name) for one in of]) for name in Entry._fields[2:5]),
        f"{sum(losers)} of {clients}" if losers else "-",
        *(f"{over_seeds(of, name):.2f}" for name in ("seconds", "bytes_up")),
        "-" if place.rank is None else f"{place.rank:.1f}",
    ]


def figure(places: Sequence[Place], own: Sequence[str] = ()) -> Figure:
    """Both goals of every method; one's own are red and bold."""
    drawn = Figure(figsize=(9, 6.4), layout="constrained")
    axes = drawn.subplots()
    points: dict[str, tuple[float, float]] = {}
    for place in places:
        across, up = (
            over_seeds(place.entries, goal) for goal in ("global_accuracy", "personal_accuracy")
        )
        if place.rank is not None and across is not None and up is not None:
            points[place.method] = 100 * across, 100 * up
    for name, point in points.items():
        axes.scatter(*point, s=22, color=COLORS[3] if name in own else COLORS[2], zorder=3)
    axes.set_xlabel(f"global accuracy, mean of the last {STEADY} rounds, %")
    axes.set_ylabel("personal accuracy over all clients, %")
    axes.margins(0.06)
    left, right = axes.get_xlim()
    axes.set_xlim(left, right + 0.1 * (right - left))  # room for the last name
    bare(axes)
    name_points(axes, points, own)
    return drawn


def leaderboard(
    board: str = FIRST,
    methods: Sequence[str | type[AnyMethod]] | None = None,
    *,
    out: Path | str = "runs/leaderboard",
    on_progress: OnProgress | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> list[Place]:
    """The ranking of a board; with methods (a name, FILE.py:CLASS, a class), these are trained and
    take their places in it. FedAvg, whose time is the unit, and `local` are trained with them.

    Keyword arguments say how to run it, such as `workers`: what is trained is the board's."""
    chosen = find_board(board)
    if methods is None:
        if not (found := kept(board)):
            raise FedmapError(
                f"the leaderboard {board} was not measured yet; train all methods with: "
                f"fedmap leaderboard --again --board {board}"
            )
        return ranking(found)
    if wrong := sorted(set(settings) & {*chosen.settings, "seeds", "seed", "params"}):
        raise FedmapError(f"{wrong[0]} is the same for all methods of a leaderboard")
    comparison = compare(
        [*dict.fromkeys([*methods, REFERENCE, ALONE])],
        seeds=chosen.seeds,
        out=out,
        on_progress=on_progress,
        progress=progress,
        **chosen.settings,
        **settings,
    )
    new = measured(comparison)
    names = {one.method for one in new}
    lost = [label for label in comparison.runs if label not in names]
    if lost and not comparison.runs.keys() >= set(contenders(board)):
        raise FedmapError(
            f"{', '.join(lost)} diverged with every seed of the leaderboard {board} and has no "
            f"place in it; its runs are in {out}"
        )
    return ranking([*new, *(one for one in kept(board) if one.method not in names)])
