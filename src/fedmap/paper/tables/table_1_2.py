"""Tables 1 and 2: aggregation and personalization of every method, with the paper's three groups of
parameters and with the defaults."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean, stdev
from typing import ClassVar

from fedmap.methods import METHODS
from fedmap.paper.federated import (
    COLUMNS,
    FEDAVG,
    FederatedRun,
    RunStudy,
    Who,
    by_seed,
    contenders,
    cut,
    difference,
    failures,
    gains_of,
    in_words,
    place,
    shown_name,
    values,
    words,
)
from fedmap.paper.finding import Estimate, signed
from fedmap.paper.groups import GROUPS
from fedmap.paper.published import PUBLISHED
from fedmap.paper.study import GOALS, STUDIES, Choice, Claim, Report, Row, Scale, names_of
from fedmap.paper.tables.best_group import best_group, compared_groups, of, seeds_of
from fedmap.paper.tables.verdicts_1_2 import MAP, METHODS_OF, claims
from fedmap.report.table import Table

CAPTIONS = {
    "global": "Aggregation (Table 1), accuracy in %: mean of the last ten rounds ± standard "
    "deviation over seeds, difference from FedAvg ± its standard error, last round",
    "personal": "Personalization (Table 2), accuracy in %: mean of all clients ± standard "
    "deviation over seeds, difference from FedAvg over the same clients ± its standard error, last "
    "round",
}
STEADIEST = {"global": "global_last_10", "personal": "personal_all_clients"}
# clients alone are no method of the paper but what its Ditto comes to
ORDER = [*METHODS_OF["personal"], *(name for name in ("local",) if name in METHODS)]
FEDPHP = ("fedphp", "default")
BEST = "best group"


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
        tables = {goal: goal_table(rows, goal) for goal in GOALS}
        told = [*notes(rows), *ditto_alone(rows), *groups_in_words(rows), *failures(rows)]
        return Report(tables, notes=told)

    def not_run(self, rows: list[Row]) -> list[str]:
        columns: dict[str, list[str]] = {}
        for name in names_of(rows, "column"):
            done = [METHODS[m].__name__ for m in GROUPS if compared_groups(rows, m, name)]
            columns.setdefault(f" (but for {', '.join(done)})" if done else "", []).append(name)
        return [
            f"the three groups of parameters on {', '.join(names)}{but}"
            for but, names in columns.items()
        ]

    def claims(self) -> list[Claim]:
        return claims()


STUDIES.add("table-1-2")(Tables12())


def runs(choice: Choice) -> Iterator[FederatedRun]:
    """All runs; those that share a federation come one after the other."""
    for name in choice.columns:
        given = place(name, choice.scale)
        for seed in choice.seeds:
            for group, run in contenders(choice.methods, partial(groups, choice=choice)):
                yield FederatedRun(choice, name, group, **given, **run, seed=seed)


def groups(method: str, choice: Choice) -> dict[str, Row]:
    """The method's default parameters; at the paper's scale also its three groups, where there is
    something to vary."""
    if choice.defaults_only or choice.scale != "paper":
        return {"default": {}}
    three = {f"group {i}": params for i, params in enumerate(GROUPS.get(method, []), 1)}
    return {"default": {}} | three


def lines_of(rows: list[Row]) -> list[Who]:
    """A line for each method and group that has rows, in the paper's order; a method's best group
    has one too, where it is known."""
    there = dict.fromkeys((r["method"], r["group"]) for r in rows)
    columns = names_of(rows, "column")
    lines: list[Who] = []
    for method in ORDER:
        groups = [group for name, group in there if name == method]
        known = any(compared_groups(rows, method, column) for column in columns)
        lines += [(method, group) for group in [*([BEST] if known else []), *groups]]
    return lines


def goal_table(rows: list[Row], goal: str) -> Table:
    """For each column: the steadiest number, the difference from FedAvg, the last round, and the
    paper's."""
    columns = [name for name in Tables12.columns if any(r["column"] == name for r in rows)]
    head = ["method"]
    for name in columns:
        seeds = {r["seed"] for r in rows if r["column"] == name}
        steady = "last 10" if goal == "global" else "all clients"
        steady += f", seed {min(seeds)}" if len(seeds) == 1 else ""
        head += [f"{name} {steady}", "from FedAvg", "last round", "paper"]
    lines = [
        [shown_name(*who), *(c for name in columns for c in cells(rows, who, name, goal))]
        for who in lines_of(rows)
    ]
    there = [line for line in lines if set(line[1:]) != {"-"}]  # clients alone have no global model
    return Table(CAPTIONS[goal], head, there)


def cells(rows: list[Row], who: Who, column: str, goal: str) -> list[str]:
    """A line's four cells in one column."""
    method, group = who
    printed = PUBLISHED[goal].get((method, column))
    paper = f"{printed:.1f}" if printed is not None and group in ("default", BEST) else "-"
    chosen = best_group(rows, method, column, goal) if group == BEST else group
    here = [r for r in rows if (r["method"], r["group"], r["column"]) == (method, chosen, column)]
    if chosen is None or not of(rows, (method, chosen), column, goal):
        lost = any(r["outcome"] == "diverged" for r in here)
        return ["diverged" if lost else "-", "-", "-", paper]
    gain = difference([r for r in rows if r["column"] == column], (method, chosen), FEDAVG, goal)
    last = f"{mean(of(rows, (method, chosen), column, goal)):.1f}"
    ours = of(rows, (method, chosen), column, STEADIEST[goal])
    # Levels of other seeds than FedAvg's are not to be compared; the difference is.
    seeds, usual = (seeds_of(rows, who, column) for who in ((method, chosen), FEDAVG))
    other = bool(usual) and seeds != usual
    return [
        with_spread(ours) + (f" (seed {', '.join(map(str, seeds))})" if other else ""),
        "-" if gain is None or who == FEDAVG else str(gain),
        f"{last} ({chosen})" if group == BEST else last,
        paper,
    ]


def with_spread(numbers: list[float]) -> str:
    """Mean and, of several, standard deviation."""
    return f"{mean(numbers):.1f}" + (f" ± {stdev(numbers):.1f}" if len(numbers) > 1 else "")


def notes(rows: list[Row]) -> list[str]:
    """What MAP gains with each single setting in both goals, and with the best group for each goal,
    as the paper has it."""
    sentences = []
    for column in names_of(rows, "column"):
        mine = [r for r in rows if r["column"] == column]
        settings = [who for who in lines_of(mine) if who[0] == "map" and who[1] != BEST]
        gains = {who[1]: gains_of(mine, who) for who in settings}
        if gains and None not in gains.values():
            told = ", ".join(f"{group} {gain}" for group, gain in gains.items())
            sentences.append(f"{column}, MAP from FedAvg with one setting for both goals: {told}.")
        if seeds := [told for who in (MAP, FEDPHP) if (told := seed_by_seed(mine, who, column))]:
            sentences.append(f"{column}, personal gains by seed: {'; '.join(seeds)}.")
        chosen = {goal: best_group(mine, "map", column, goal) for goal in GOALS}
        if all(chosen.values()):
            parts = (
                f"{goal} {difference(mine, ('map', str(group)), FEDAVG, goal)} ({group})"
                for goal, group in chosen.items()
            )
            sentences.append(
                f"{column}, MAP from FedAvg with the best group for each goal, as the paper "
                f"reports it: {', '.join(parts)}."
            )
    return sentences


def seed_by_seed(rows: list[Row], who: Who, column: str) -> str:
    """How far it is above FedAvg in personalization with each seed, and their mean with its error:
    clients of one seed share a global model, so the error over clients is too small."""
    gains = by_seed(rows, who, FEDAVG, "personal", column)
    if len(gains) < 2:
        return ""
    means = [mean(gains[seed]) for seed in sorted(gains)]
    return f"{shown_name(*who)} {', '.join(map(signed, means))} (mean {Estimate.of(means)})"


def ditto_alone(rows: list[Row]) -> list[str]:
    """The published Ditto beside clients that train alone, where they were run."""
    sentences = []
    for column in names_of(rows, "column"):
        alone, ours = (level(rows, method, column) for method in ("local", "ditto"))
        if alone and ours:
            sentences.append(
                f"{column}: clients that train alone have {alone}, Ditto here has {ours} (all "
                f"clients, ± standard error over them); the paper prints "
                f"{PUBLISHED['personal']['ditto', column]} for Ditto, whose pull its code divides "
                "to nothing."
            )
    return sentences


def groups_in_words(rows: list[Row]) -> list[str]:
    """What the groups are that have rows."""
    shown = {(r["method"], r["group"]) for r in rows}
    sentences = []
    for method, three in GROUPS.items():
        told = [
            f"{name} has {', '.join(in_words(params))}"
            for i, params in enumerate(three, 1)
            if (method, name := f"group {i}") in shown
        ]
        if told:
            sentences.append(f"{METHODS[method].__name__}'s {'; '.join(told)}.")
    return sentences


def level(rows: list[Row], method: str, column: str) -> str:
    """The personal accuracy over all clients of all seeds, with its standard error."""
    mine = [
        r for r in rows if (r["method"], r["group"], r["column"]) == (method, "default", column)
    ]
    every = [accuracy for r in mine for accuracy in values(r, "personal")]
    return Estimate.of(every).plain(1) if every else ""
