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
from fedmap.report.plots import COLORS, bare, smooth
from fedmap.report.table import Table
from fedmap.simulate.result import STEADY

FRACTIONS, EPOCHS = (0.1, 0.3), (2, 5, 10)
SETTINGS: dict[str, dict[str, Any]] = {
    f"Q={q:g}, E={e}": {"fraction": q, "epochs": e} for q in FRACTIONS for e in EPOCHS
}
SMOOTH = 3  # rounds in the mean that a line shows
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
            return [dict.fromkeys(["round", *GOALS, "per_client"])]
        result = run.result(root)
        rows: list[Row] = [
            {"round": record["round"]}
            | {goal: percent(record[f"{goal}_accuracy"]) for goal in GOALS}
            | {"per_client": None}
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


def steady(values: NDArray[np.float64]) -> float:
    """The mean of the last ten rounds."""
    return float(values[-STEADY:].mean())


def methods_of(rows: list[Row], column: str) -> list[str]:
    """The methods that have numbers in this column, in the order of all rows."""
    there = {r["method"] for r in rows if r["column"] == column}
    return [method for method in names_of(rows, "method") if method in there]


def table(rows: list[Row]) -> Table:
    """Last round and mean of the last ten, of every method in every column."""
    ends = ("last round", f"last {STEADY}")
    head = ["column", "method", f"global, {ends[0]}", ends[1], f"personal, {ends[0]}", ends[1]]
    lines = []
    for column in names_of(rows, "column"):
        for method in methods_of(rows, column):
            curves = [curve(rows, column, method, goal) for goal in GOALS]
            numbers = [number for c in curves for number in (c[-1], steady(c))]
            name = shown_name(method)
            lines.append([column, name, *(f"{number:.1f}" for number in numbers)])
    return Table("FEMNIST, accuracy in %", head, lines)


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
    grid[0][0].legend(frameon=False, fontsize=8)
    for unused in (axes for axes in grid.flat if not axes.has_data()):
        unused.remove()
    return drawn


def draw(axes: Axes, rows: list[Row], column: str, goal: str) -> None:
    """One line for each method, smoothed over a few rounds."""
    for color, method in zip(COLORS, names_of(rows, "method"), strict=False):
        values = curve(rows, column, method, goal)
        if len(values):
            rounds = np.arange(1, len(values) + 1)
            axes.plot(rounds, smooth(values, SMOOTH), color=color, label=shown_name(method))
    bare(axes)


def decided(rows: list[Row]) -> list[str]:
    """The settings that may decide: enough writers, and every method with enough seeds."""
    methods, found = names_of(rows, "method"), []
    for column in names_of(rows, "column"):
        mine = [r for r in rows if r["column"] == column]
        seeds = [{r["seed"] for r in mine if r["method"] == method} for method in methods]
        if all(len(some) >= SEEDS for some in seeds) and writers(mine) >= WRITERS:
            found.append(column)
    return found


def writers(rows: list[Row]) -> int:
    """How many clients the runs have, at least."""
    cells = [str(r["per_client"]) for r in rows if r.get("per_client")]
    return min((len(cell.split()) for cell in cells), default=0)


def gain(rows: list[Row], column: str, other: str, goal: str) -> Estimate:
    """MAP above another method: global over seeds, personal over clients."""
    ours, theirs = (
        {r["seed"]: r for r in summaries(rows, method, column)} for method in ("map", other)
    )
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    return Estimate.of(
        [a - b for x, y in pairs for a, b in zip(values(x, goal), values(y, goal), strict=True)]
    )


def summaries(rows: list[Row], method: str, column: str) -> list[Row]:
    """A row for each seed: the last one, with the mean of the last ten rounds."""
    mine = [r for r in rows if (r["method"], r["column"]) == (method, column)]
    found = []
    for seed in names_of(mine, "seed"):
        rounds = [r for r in mine if r["seed"] == seed]
        steady_mean = mean(r["global"] for r in rounds[-STEADY:])
        found.append(rounds[-1] | {"global_last_10": steady_mean})
    return found


def findings(rows: list[Row]) -> list[Finding]:
    """The paper: MAP is better than the others under all of these settings. Settings without
    enough writers, seeds or methods do not count."""
    methods, columns, found = names_of(rows, "method"), decided(rows), []
    others = [method for method in methods if method != "map"]
    if "map" not in methods or not others or not columns:
        return []
    for goal in GOALS:
        gains = {c: {m: gain(rows, c, m, goal) for m in others} for c in columns}
        first = sum(all(g.above for g in by_method.values()) for by_method in gains.values())
        told = "; ".join(
            f"{column} " + ", ".join(f"{g} from {shown_name(m)}" for m, g in by_method.items())
            for column, by_method in gains.items()
        )
        numbers = f"{goal}: MAP is first in {first} of {len(columns)} settings ({told})"
        verdict = Verdict.of(first == len(columns), first > 0)
        statement = "The paper's 'better performances under all of these experimental settings'"
        short = f"{goal} first in {first} of {len(columns)} settings"
        found.append(Finding(statement, verdict, numbers, short))
    return found


def better_everywhere(claim: str, rows: list[Row]) -> Finding:
    """MAP is above the three other methods in both accuracies in every setting; in part: in one
    accuracy in one setting."""
    rows = [r for r in rows if r["round"] is not None]
    found = findings(rows)
    if not found:
        return not_tested(claim, f"no setting has {WRITERS} writers and {SEEDS} seeds")
    both = together(claim, found, "; ".join(finding.numbers for finding in found))
    short = ", ".join(finding.short for finding in found)
    ran = {variant(name)[0] for name in names_of(rows, "method")}
    missing = len(decided(rows)) < len(SETTINGS) or not ran >= set(FemnistStudy.methods)
    return both._replace(short=short, so_far=missing)
