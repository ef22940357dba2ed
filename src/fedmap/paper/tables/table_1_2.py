"""Tables 1 and 2: aggregation and personalization of every method, best of the paper's three
parameter groups."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean, stdev
from typing import ClassVar

from fedmap.methods import METHODS
from fedmap.paper.federated import COLUMNS, FederatedRun, RunStudy, contenders, cut, place, words
from fedmap.paper.finding import Finding, Verdict, not_tested, signed
from fedmap.paper.groups import GROUPS
from fedmap.paper.published import PUBLISHED
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
from fedmap.report.table import Table

CAPTIONS = {
    "global": "Aggregation (Table 1): the global model on every class, accuracy in %",
    "personal": "Personalization (Table 2): personal models, accuracy in %",
}
# the paper's methods in its order: two of them have no global model and are in Table 2 alone
METHODS_OF = {goal: list(dict.fromkeys(m for m, _ in PUBLISHED[goal])) for goal in GOALS}
ORDER = METHODS_OF["personal"]
COMBINED = ("dittors", "scars", "map", "scamap")  # all others are single methods


class Tables12(RunStudy):
    """All methods, with the paper's settings and its three groups of parameters."""

    line = "Aggregation and personalization of 23 methods on 4 datasets with 2 networks each"
    paper = "Tables 1 and 2"
    columns: ClassVar[Sequence[str]] = [column.name for column in COLUMNS]
    methods: ClassVar[Sequence[str]] = ORDER

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[: {"small": 4, "smoke": 1}.get(scale)]

    def cuts(self, scale: Scale) -> list[str]:
        groups = "default parameters instead of the best of three groups"
        return [] if scale == "paper" else [*words(cut(scale)), groups]

    def work(self, choice: Choice) -> list[FederatedRun]:
        return list(runs(choice))

    def report(self, rows: list[Row]) -> Report:
        return Report(tables={goal: goal_table(rows, goal) for goal in GOALS}, notes=notes(rows))

    def claims(self) -> list[Claim]:
        singles = partial(best_single, goal="global", wanted=("fedrs", "scaffold"))
        hpm = partial(best_single, goal="personal", wanted=("fedphp",))
        return [
            Claim("MAP is above FedAvg in aggregation and in personalization", above_fedavg),
            Claim("FedRS and Scaffold are the best single methods for aggregation", singles),
            Claim("FedPHP, the HPM alone, is the best single method for personalization", hpm),
            Claim("No other method is above MAP in both", nobody_above_in_both),
        ]


STUDIES.add("table-1-2")(Tables12())


def runs(choice: Choice) -> Iterator[FederatedRun]:
    """All runs; those that share a federation come one after the other."""
    for name in choice.columns:
        given = place(name, choice.scale)
        for seed in choice.seeds:
            for group, run in contenders(choice.methods, partial(groups, choice=choice)):
                yield FederatedRun(choice, name, group, **given, **run, seed=seed)


def groups(method: str, choice: Choice) -> dict[str, Row]:
    """The method's default parameters; at the paper's scale its three groups, where there is
    something to vary."""
    if choice.defaults_only or choice.scale != "paper" or method not in GROUPS:
        return {"default": {}}
    return {f"group {i}": params for i, params in enumerate(GROUPS[method], 1)}


def best(rows: list[Row], method: str, column: str, goal: str) -> dict[str, float] | None:
    """The best group's mean over seeds: last round, mean of the last ten, and the spread over
    groups and over seeds."""
    by_group: dict[str, list[Row]] = {}
    for r in rows:
        if (r["method"], r["column"]) == (method, column) and r[goal] is not None:
            by_group.setdefault(r["group"], []).append(r)
    if not by_group:
        return None
    means = {group: mean(r[goal] for r in seeds) for group, seeds in by_group.items()}
    seeds = by_group[max(means, key=lambda name: means[name])]
    numbers = {"last": max(means.values()), "last_10": mean(r[f"{goal}_last_10"] for r in seeds)}
    if len(means) > 1:
        numbers["groups"] = stdev(means.values())
    if len(seeds) > 1:
        numbers["seeds"] = stdev(r[goal] for r in seeds)
    return numbers


def scores(rows: list[Row], column: str, goal: str) -> dict[str, float]:
    """Mean of the last ten rounds, of each method that has one."""
    return {m: found["last_10"] for m in ordered(rows) if (found := best(rows, m, column, goal))}


def ordered(rows: list[Row]) -> list[str]:
    """The methods that have numbers, in the paper's order."""
    there = {r["method"] for r in rows}
    return [method for method in ORDER if method in there]


def goal_table(rows: list[Row], goal: str) -> Table:
    """For each column: last round, mean of the last ten, the paper's number, and the difference
    from it."""
    columns = [name for name in Tables12.columns if any(r["column"] == name for r in rows)]
    head = ["method"]
    for name in columns:
        head += [f"{name} last round", "last 10", "paper", "difference"]
    lines = [
        [
            METHODS[method].__name__,
            *(c for name in columns for c in cells(rows, method, name, goal)),
        ]
        for method in ordered(rows)
    ]
    return Table(CAPTIONS[goal], head, lines)


def cells(rows: list[Row], method: str, column: str, goal: str) -> list[str]:
    """A method's four cells in one column."""
    found, printed = best(rows, method, column, goal), PUBLISHED[goal].get((method, column))
    paper = "-" if printed is None else f"{printed:.1f}"
    if found is None:
        outcomes = [r["outcome"] for r in rows if (r["method"], r["column"]) == (method, column)]
        return ["diverged" if "diverged" in outcomes else "-", "-", paper, "-"]
    difference = "-" if printed is None else signed(found["last"] - printed)
    return [f"{found['last']:.1f}{spread(found)}", f"{found['last_10']:.1f}", paper, difference]


def spread(found: dict[str, float]) -> str:
    """Standard deviations in brackets, where there are any."""
    parts = [f"{found[what]:.1f} over {what}" for what in ("groups", "seeds") if what in found]
    return f" (± {', '.join(parts)})" if parts else ""


def notes(rows: list[Row]) -> list[str]:
    """Where FedAvg and MAP stand, column by column."""
    sentences = []
    for name in names_of(rows, "column"):
        for goal in GOALS:
            found = scores(rows, name, goal)
            if {"map", "fedavg"} <= found.keys():
                rank = 1 + sum(score > found["map"] for score in found.values())
                gain = signed(found["map"] - found["fedavg"])
                first = max(found, key=lambda m: found[m])
                sentences.append(
                    f"{name}, {goal}, mean of the last ten rounds: MAP is {gain} points from "
                    f"FedAvg and number {rank} of {len(found)}; the first is {first} with "
                    f"{found[first]:.1f}."
                )
    return sentences


def columns_with(rows: list[Row], goals: Sequence[str], *methods: str) -> list[str]:
    """The columns in which all of these methods have a number for every goal."""
    return [
        column
        for column in names_of(rows, "column")
        if all(set(methods) <= scores(rows, column, goal).keys() for goal in goals)
    ]


def above_fedavg(claim: str, rows: list[Row]) -> Finding:
    """In both accuracies in every column; in part: in one of them."""
    columns = columns_with(rows, GOALS, "map", "fedavg")
    if not columns:
        return not_tested(claim, "no column has both methods")
    parts, won = [], []
    for column in columns:
        for goal in GOALS:
            found = scores(rows, column, goal)
            won.append(found["map"] > found["fedavg"])
            parts.append(f"{column} {goal} {found['map']:.1f} against {found['fedavg']:.1f}")
    return Finding(claim, Verdict.of(all(won), any(won)), "; ".join(parts))


def best_single(claim: str, rows: list[Row], *, goal: str, wanted: tuple[str, ...]) -> Finding:
    """The wanted methods are the first among the single ones in every column; in part: the first
    of them is above FedAvg everywhere."""
    columns = columns_with(rows, [goal], "fedavg", *wanted)
    if not columns:
        return not_tested(claim, f"no column has FedAvg and {' and '.join(wanted)}")
    parts, first, above, so_far = [], [], [], False
    everyone = set(METHODS_OF[goal]) - set(COMBINED)
    for column in columns:
        singles = {m: s for m, s in scores(rows, column, goal).items() if m in everyone}
        ranking = sorted(singles, key=lambda m: -singles[m])
        first.append(set(ranking[: len(wanted)]) == set(wanted))
        above.append(singles[wanted[0]] > singles["fedavg"])
        so_far |= singles.keys() != everyone
        top = ", ".join(f"{m} {singles[m]:.1f}" for m in ranking[:5])
        parts.append(f"{column}, of {len(singles)} single methods: {top}")
    return Finding(claim, Verdict.of(all(first), all(above)), "; ".join(parts), so_far)


def nobody_above_in_both(claim: str, rows: list[Row]) -> Finding:
    """No method but ScaMAP is above MAP in both accuracies in any column; in part: MAP is above
    FedAvg in both everywhere."""
    columns = columns_with(rows, GOALS, "map", "fedavg")
    if not columns:
        return not_tested(claim, "no column has MAP and FedAvg")
    parts, nobody, above, so_far = [], [], [], False
    for column in columns:
        both = [scores(rows, column, goal) for goal in GOALS]
        names = [m for m in both[0] if m in both[1]]
        others = [m for m in names if m not in ("map", "scamap")]
        better = [m for m in others if all(goal[m] > goal["map"] for goal in both)]
        nobody.append(not better)
        above.append(all(goal["map"] > goal["fedavg"] for goal in both))
        so_far |= len(names) < len(METHODS_OF["global"])
        parts.append(f"{column}, of {len(names)} methods: {', '.join(better) or 'none'}")
    numbers = f"above MAP in both: {'; '.join(parts)}"
    return Finding(claim, Verdict.of(all(nobody), all(above)), numbers, so_far)
