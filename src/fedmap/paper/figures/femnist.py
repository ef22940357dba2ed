"""FEMNIST: convergence of four methods for two fractions of clients in each round and three numbers
of local epochs."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmap.methods import variant
from fedmap.paper.federated import (
    FederatedRun,
    RunStudy,
    contenders,
    cut,
    per_client,
    percent,
    shown_name,
    values,
    words,
)
from fedmap.paper.finding import SEEDS, Estimate, Finding, Verdict, not_tested, together
from fedmap.paper.study import (
    GOALS,
    STUDIES,
    Choice,
    Claim,
    Report,
    Row,
    Scale,
    names_of,
)
from fedmap.paper.tables.table_1_2 import with_spread
from fedmap.report.plots import COLORS, bare, smooth
from fedmap.report.table import Table
from fedmap.simulate.result import STEADY

FRACTIONS, EPOCHS = (0.1, 0.3), (2, 5, 10)
SETTINGS: dict[str, dict[str, Any]] = {
    f"Q={q:g}, E={e}": {"fraction": q, "epochs": e} for q in FRACTIONS for e in EPOCHS
}
SMOOTH = 3  # rounds in the mean that a line shows
LEAF = 3550  # writers that the whole data has
WRITERS = 100  # that a verdict needs: with fewer a round has a handful of clients
# so few rounds hardly begin to learn with the paper's rate of 0.004
SMALL = {"samples": 4000, "rounds": 30, "lr": 0.01}
SMOKE = {
    "data": "fashion-mini",
    "net": "lenet",
    "samples": 200,
    "clients": 10,
    "rounds": 2,
    "batch": 16,
}


class FemnistStudy(RunStudy):
    """One client for each writer; a column is a fraction of clients with a number of epochs."""

    line = "Convergence on FEMNIST, where every client is a writer"
    paper = "The figure of convergence curves"
    columns: ClassVar[Sequence[str]] = list(SETTINGS)
    methods: ClassVar[Sequence[str]] = ["fedavg", "scaffold", "fedrod", "map"]

    def cuts(self, scale: Scale) -> list[str]:
        writers = ["the first writers that have so many samples"] if scale == "small" else []
        return [*words(cut(scale, SMALL, SMOKE)), *writers]

    def not_run(self, rows: list[Row]) -> list[str]:
        there = writers(rows)
        return [f"{LEAF - there} of {LEAF} writers"] if 0 < there < LEAF else []

    def work(self, choice: Choice) -> list[FederatedRun]:
        place = {"data": "femnist", "net": "femnist"} | cut(choice.scale, SMALL, SMOKE)
        return [
            FederatedRun(choice, name, group, **place, **setting, **run, seed=seed)
            for name, setting in SETTINGS.items()
            if name in choice.columns
            for seed in choice.seeds
            for group, run in contenders(choice.methods, lambda method: {"default": {}})
        ]

    def where(self, run: FederatedRun) -> Row:
        settings = run.settings
        method = settings.method + ("" if run.group == "default" else f"[{run.group}]")
        where: Row = {"column": run.column, "method": method}
        return where | {"seed": settings.seed, "clip": settings.clip}

    def numbers(self, run: FederatedRun, root: Path) -> list[Row]:
        if run.diverged(root):  # one row without a round
            return [dict.fromkeys(["round", *GOALS, "download", "per_client"])]
        result = run.result(root)
        rows: list[Row] = [
            {"round": record["round"]}
            | {goal: percent(record[f"{goal}_accuracy"]) for goal in GOALS}
            | {"download": percent(record["personal_accuracy_download"]), "per_client": None}
            for record in result.rounds
        ]
        rows[-1]["per_client"] = per_client(result.final)
        return rows

    def report(self, rows: list[Row]) -> Report:
        lost = [
            f"{shown_name(r['method'])} with {r['column']}, seed {r['seed']}, diverged and is left "
            "out."
            for r in rows
            if r["round"] is None
        ]
        ended = [r for r in rows if r["round"] is not None]
        if not ended:
            return Report(notes=lost)
        return Report({"femnist": table(ended)}, {"curves": figure(ended)}, findings(ended), lost)

    def claims(self) -> list[Claim]:
        return [Claim("On FEMNIST MAP is better in every setting", better_everywhere)]


STUDIES.add("femnist")(FemnistStudy())


def curve(rows: list[Row], column: str, method: str, goal: str) -> NDArray[np.float64]:
    """By round, mean over seeds; empty where the method has no number in this column."""
    mine = [r for r in rows if (r["column"], r["method"]) == (column, method)]
    by_seed = [[r[goal] for r in mine if r["seed"] == seed] for seed in names_of(mine, "seed")]
    return np.mean(by_seed, axis=0) if by_seed else np.empty(0)


def methods_of(rows: list[Row], column: str) -> list[str]:
    """The methods that have numbers in this column, in the order of all rows."""
    there = {r["method"] for r in rows if r["column"] == column}
    return [method for method in names_of(rows, "method") if method in there]


def table(rows: list[Row]) -> Table:
    """Every method in every column: what decides, its difference from FedAvg, and the last round's
    own numbers."""
    head = ["column", "method", "seeds"]
    for goal, steady in (("global", f"last {STEADY}"), ("personal", "all writers")):
        head += [f"{goal}, {steady}", "from FedAvg", "last round"]
    head.append("its download")
    lines = [
        [column, shown_name(method), *cells(rows, method, column)]
        for column in names_of(rows, "column")
        for method in methods_of(rows, column)
    ]
    caption = (
        "FEMNIST, accuracy in %, mean ± standard deviation over seeds, and differences ± standard "
        "error; personal: of all writers after the last round, of those in the last round, and of "
        "the download that these were given"
    )
    return Table(caption, head, lines)


def cells(rows: list[Row], method: str, column: str) -> list[str]:
    """A line's seeds, and its numbers for both goals."""
    mine = summaries(rows, method, column)
    found = [", ".join(str(seed) for seed in mine)]
    for goal in GOALS:
        by_seed = [mean(own) for r in mine.values() if (own := values(r, goal))]
        gain = None if method == "fedavg" else difference(rows, column, method, "fedavg", goal)
        found += [
            with_spread(by_seed) if by_seed else "-",
            "-" if gain is None else str(gain),
            f"{mean(r[goal] for r in mine.values()):.1f}",
        ]
    return [*found, f"{mean(r['download'] for r in mine.values()):.1f}"]


def figure(rows: list[Row]) -> Figure:
    """A band for each fraction, in it one goal above the other and the epochs side by side."""
    columns = names_of(rows, "column")
    wide, bands = min(len(columns), len(EPOCHS)), -(-len(columns) // len(EPOCHS))
    drawn = Figure(figsize=(3.4 * wide, 5 * bands), layout="constrained")
    grid: Any = drawn.subplots(2 * bands, wide, squeeze=False, sharex=True)
    for place, column in enumerate(columns):
        band, j = divmod(place, wide)
        for i, goal in enumerate(GOALS, 2 * band):
            draw(grid[i][j], rows, column, goal)
        grid[2 * band][j].set_title(column, loc="left", fontsize=10)
    for i, line in enumerate(grid):
        line[0].set_ylabel(f"{GOALS[i % 2]} accuracy, %")
    for axes in grid[-1]:
        axes.set_xlabel(f"round (mean of {SMOOTH})")
    named = grid[0][0].get_legend_handles_labels()
    drawn.legend(*named, loc="outside upper left", ncols=2 * wide, frameon=False, fontsize=8)
    for unused in (axes for axes in grid.flat if not axes.has_data()):
        unused.remove()
    return drawn


def draw(axes: Axes, rows: list[Row], column: str, goal: str) -> None:
    """One line for each method, smoothed over a few rounds."""
    every = list(dict.fromkeys([*FemnistStudy.methods, *names_of(rows, "method")]))
    for color, method in zip(COLORS, every, strict=False):
        values = curve(rows, column, method, goal)
        if len(values):
            rounds = np.arange(1, len(values) + 1)
            axes.plot(rounds, smooth(values, SMOOTH), color=color, label=shown_name(method))
    bare(axes)


def summaries(rows: list[Row], method: str, column: str) -> dict[int, Row]:
    """A row for each seed: the last one, with the mean of the last ten rounds."""
    mine = [r for r in rows if (r["method"], r["column"]) == (method, column)]
    found = {}
    for seed in names_of(mine, "seed"):
        rounds = [r for r in mine if r["seed"] == seed]
        steady = mean(r["global"] for r in rounds[-STEADY:])
        found[seed] = rounds[-1] | {"global_last_10": steady}
    return found


def difference(rows: list[Row], column: str, ours: str, other: str, goal: str) -> Estimate | None:
    """One method above another with the same seeds: global over the seeds, personal over the
    writers. These are the same with every seed, so that each counts once, with its mean."""
    mine, theirs = (summaries(rows, method, column) for method in (ours, other))
    pairs = [(values(mine[s], goal), values(theirs[s], goal)) for s in mine if s in theirs]
    gains = [[a - b for a, b in zip(x, y, strict=True)] for x, y in pairs if x and y]
    if not gains:
        return None
    if goal == "global":
        return Estimate.of([gain for (gain,) in gains])
    return Estimate.of([mean(writer) for writer in zip(*gains, strict=True)])


def writers(rows: list[Row]) -> int:
    """How many clients the runs have, at least."""
    cells = [str(r["per_client"]) for r in rows if r.get("per_client")]
    return min((len(cell.split()) for cell in cells), default=0)


def rivals(rows: list[Row]) -> dict[str, list[str]]:
    """By setting that may decide, with whom MAP is compared: enough writers, and enough seeds that
    both have."""
    found = {}
    for column in names_of(rows, "column"):
        mine = [r for r in rows if r["column"] == column]
        ours = summaries(mine, "map", column).keys()
        others = [
            method
            for method in methods_of(mine, column)
            if variant(method)[0] != "map"
            and len(ours & summaries(mine, method, column).keys()) >= SEEDS
        ]
        if others and writers(mine) >= WRITERS:
            found[column] = others
    return found


def findings(rows: list[Row]) -> list[Finding]:
    """The paper: MAP is better than the others under all of these settings. Settings without
    enough writers, seeds or methods do not count."""
    settings, found = rivals(rows), []
    for goal in GOALS if settings else ():
        parts, first = [], 0
        for column, others in settings.items():
            gains = {m: difference(rows, column, "map", m, goal) for m in others}
            first += all(gain is not None and gain.above for gain in gains.values())
            told = ", ".join(f"{gain} from {shown_name(m)}" for m, gain in gains.items())
            parts.append(f"{goal.capitalize()} accuracy, {column}: MAP {told}")
        verdict = Verdict.of(first == len(settings), first > 0)
        statement = "The paper's 'better performances under all of these experimental settings'"
        found.append(Finding(statement, verdict, "; ".join(parts)))
    return found


def better_everywhere(claim: str, rows: list[Row]) -> Finding:
    """MAP is above the three other methods in both accuracies in every setting; in part: in one
    accuracy in one setting."""
    lost = [r for r in rows if r["round"] is None]
    rows = [r for r in rows if r["round"] is not None]
    found, settings = findings(rows), rivals(rows)
    if not found:
        return not_tested(
            claim,
            f"no setting has {WRITERS} writers, and MAP and another method with {SEEDS} seeds",
        )
    numbers = [finding.numbers for finding in found]
    numbers += [f"{shown_name(r['method'])}, seed {r['seed']}, diverged" for r in lost]
    both = together(claim, found, "; ".join(numbers))
    told = [beside_the_best(rows, column, others) for column, others in settings.items()]
    count = f"{len(settings)} of {len(SETTINGS)} settings, {writers(rows)} of {LEAF} writers"
    everyone = set(FemnistStudy.methods) - {"map"}
    missing = len(settings) < len(SETTINGS) or any({*some} < everyone for some in settings.values())
    return both._replace(short=f"{'; '.join(told)}; {count}", so_far=missing)


def beside_the_best(rows: list[Row], column: str, others: list[str]) -> str:
    """How far MAP is from the best other in each goal, in words."""
    told = []
    for goal in GOALS:
        gains = [(difference(rows, column, "map", m, goal), m) for m in others]
        known = [(gain, m) for gain, m in gains if gain is not None]
        gain, best = min(known, key=lambda pair: pair[0].mean)
        told.append(f"{goal} {gain} from {shown_name(best)}")
    return f"{' and '.join(told)}, the best others ({column})"
