"""Which method for which federation: some of the best methods beside FedAvg and every client alone,
by the share of missing classes, by participation and by size. This is not in the paper."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any, ClassVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmap.paper.federated import (
    FEDAVG,
    FederatedRun,
    RunStudy,
    contenders,
    cut,
    difference,
    failures,
    shown_name,
    values,
    words,
)
from fedmap.paper.study import GOALS, STUDIES, Choice, Report, Row, Scale, names_of
from fedmap.report.clients import ALONE
from fedmap.report.plots import COLORS, bare
from fedmap.report.table import Table


def classes_each(number: int) -> dict[str, Any]:
    """Every client has so many of the ten classes."""
    return {"partition": "shards", "partition_params": {"classes_per_client": number}}


FEDERATIONS: dict[str, dict[str, Any]] = {
    "as usual": {},  # 4 classes missing on average, a fifth of the clients in a round
    "2 classes each": classes_each(2),
    "5 classes each": classes_each(5),
    "Dirichlet 0.5": {"partition": "dirichlet"},  # half of the clients still miss classes
    "half in a round": {"fraction": 0.5},
    "5 clients": {"clients": 5, "fraction": 0.4},
    "100 clients": {"clients": 100},
}
METHODS = (
    ALONE, "fedavg", "fedrod", "fedvls", "fedgela[loss=etf]", "fedmmd", "map", "map[preset=own]",
)  # fmt: skip
# Gradients are shortened to 100, as in the authors' code: without, LeNet may diverge.
CLIP = 100.0
PLACE = {"data": "fashion-mnist", "net": "lenet", "clip": CLIP}
SMALL = {"data": "fashion-mini", "clients": 20, "rounds": 20}
SMOKE = SMALL | {"samples": 300, "clients": 5, "fraction": 0.4, "rounds": 2, "epochs": 1}


class Federations(RunStudy):
    """Each federation differs from the usual one in one thing."""

    line = "Which method for which federation: missing classes, participation, size"
    paper = "An addition to the tables"
    clip = CLIP
    columns: ClassVar[Sequence[str]] = tuple(FEDERATIONS)
    methods: ClassVar[Sequence[str]] = METHODS

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[:2] if scale == "smoke" else self.columns

    def cuts(self, scale: Scale) -> list[str]:
        return words(cut(scale, SMALL, SMOKE))

    def work(self, choice: Choice) -> list[FederatedRun]:
        given = PLACE | cut(choice.scale, SMALL, SMOKE)
        return [
            FederatedRun(
                choice, column, group, **given | FEDERATIONS[column] | who | {"seed": seed}
            )
            for seed in choice.seeds
            for column in choice.columns
            for group, who in contenders(choice.methods, lambda method: {"default": {}})
        ]

    def report(self, rows: list[Row]) -> Report:
        seeds = ", ".join(str(seed) for seed in names_of(rows, "seed"))
        return Report(
            {"accuracies": table(seeds, rows), "losers": losers_table(seeds, rows)},
            {"gains": figure(rows)},
            notes=[*(best(rows, column) for column in names_of(rows, "column")), *failures(rows)],
        )


STUDIES.add("federations")(Federations())


def who_ran(rows: list[Row]) -> list[tuple[str, str]]:
    """Methods with their groups, in order."""
    return list(dict.fromkeys((r["method"], r["group"]) for r in rows))


def over_seeds(rows: list[Row], who: tuple[str, str], column: str, goal: str) -> list[float]:
    """One accuracy for each seed: of the last ten rounds, or over all clients."""
    mine = [r for r in rows if (r["method"], r["group"], r["column"]) == (*who, column)]
    found = [values(r, goal) for r in mine]
    return [mean(some) for some in found if some]


def in_per_cent(found: Sequence[float]) -> str:
    """Mean and spread."""
    spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
    return f"{mean(found):.1f}{spread}" if found else "-"


def table(seeds: str, rows: list[Row]) -> Table:
    """One line for each method, one cell for each federation."""
    columns = names_of(rows, "column")
    lines = []
    for who in who_ran(rows):
        both = ([over_seeds(rows, who, column, goal) for goal in GOALS] for column in columns)
        lines.append([shown_name(*who), *(" / ".join(map(in_per_cent, pair)) for pair in both)])
    caption = (
        "Global accuracy, mean of the last ten rounds / personal accuracy over all clients, in %, "
        f"mean ± standard deviation over seeds {seeds}; clip 100"
    )
    return Table(caption, ["method", *columns], lines)


def losers_table(seeds: str, rows: list[Row]) -> Table:
    """How many clients are worse off than alone."""
    columns = names_of(rows, "column")
    lines = [
        [shown_name(*who), *(losers(rows, who, column) for column in columns)]
        for who in who_ran(rows)
        if who[0] != ALONE
    ]
    caption = f"Clients that are worse off than training alone, over seeds {seeds}"
    return Table(caption, ["method", *columns], lines)


def losers(rows: list[Row], who: tuple[str, str], column: str) -> str:
    """Of all clients of the seeds that both have."""
    mine, alone = (
        {
            r["seed"]: values(r, "personal")
            for r in rows
            if (r["method"], r["group"], r["column"]) == (*one, column)
        }
        for one in (who, (ALONE, "default"))
    )
    pairs = [
        pair
        for seed in mine.keys() & alone.keys()
        for pair in zip(mine[seed], alone[seed], strict=bool(mine[seed] and alone[seed]))
    ]
    return f"{sum(a < b for a, b in pairs)} of {len(pairs)}" if pairs else "-"


def best(rows: list[Row], column: str) -> str:
    """Who is first in each goal, and how far above FedAvg."""
    said = []
    for goal in GOALS:
        found = {
            who: mean(some)
            for who in who_ran(rows)
            if (some := over_seeds(rows, who, column, goal))
        }
        first = max(found, key=lambda who: found[who])
        here = [r for r in rows if r["column"] == column]
        gain = None if first == FEDAVG else difference(here, first, FEDAVG, goal)
        beside = f" ({gain} to FedAvg)" if gain else ""
        said.append(f"{goal} {shown_name(*first)} with {found[first]:.1f} %{beside}")
    return f"{column}: first are {', '.join(said)}."


def figure(rows: list[Row]) -> Figure:
    """Gains on FedAvg, one line of points for each federation."""
    columns = names_of(rows, "column")
    drawn = Figure(figsize=(9, 0.62 * len(columns) + 1.6), layout="constrained")
    both = drawn.subplots(1, 2, sharey=True)
    for axes, goal in zip(both, GOALS, strict=True):
        gains(axes, rows, columns, goal)
        axes.set_title(f"{goal} accuracy", loc="left", fontsize=11)
        axes.set_xlabel("points above FedAvg (bars: standard error)")
    both[0].set_yticks(range(len(columns)), columns)
    both[0].invert_yaxis()
    lines, names = both[1].get_legend_handles_labels()
    drawn.legend(lines, names, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return drawn


def gains(axes: Axes, rows: list[Row], columns: Sequence[str], goal: str) -> None:
    """A point with its standard error for each method in each federation, a little apart."""
    others = [who for who in who_ran(rows) if who != FEDAVG]
    axes.axvline(0, color="0.6", linewidth=1)
    for number, who in enumerate(others):
        found = {
            place: gain
            for place, column in enumerate(columns)
            if (gain := difference([r for r in rows if r["column"] == column], who, FEDAVG, goal))
        }
        axes.errorbar(
            [gain.mean for gain in found.values()],
            [place + 0.1 * (number - (len(others) - 1) / 2) for place in found],
            xerr=[gain.error or 0.0 for gain in found.values()],
            label=shown_name(*who),
            color=COLORS[number],
            fmt="o",
            markersize=4,
            elinewidth=0.8,
        )
    bare(axes)
