"""Tables 1 and 2: aggregation and personalization of every method, best of the paper's three
parameter groups."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import ClassVar

from fedmap.methods import METHODS, find_method
from fedmap.paper.federated import COLUMNS, FederatedRun, cut, place, row, words
from fedmap.paper.published import PERSONALIZATION, PUBLISHED, table
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.report.table import Table

GOALS = {
    "global": "Aggregation (Table 1): the global model on every class",
    "personal": "Personalization (Table 2): personal models",
}
ORDER = list(dict.fromkeys(method for method, _ in table(PERSONALIZATION)))  # the paper's


class Tables12(Study):
    line = "Aggregation and personalization of 23 methods on 4 datasets with 2 networks each"
    paper = "Tables 1 and 2"
    columns: ClassVar[Sequence[str]] = [column.name for column in COLUMNS]
    methods: ClassVar[Sequence[str]] = ORDER

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return (
            self.columns
            if scale == "paper"
            else self.columns[:4]
            if scale == "small"
            else self.columns[:1]
        )

    def cuts(self, scale: Scale) -> list[str]:
        return (
            []
            if scale == "paper"
            else [*words(cut(scale)), "default parameters instead of the best of three groups"]
        )

    def work(self, choice: Choice) -> list[FederatedRun]:
        return list(runs(choice))

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [row(run, root) for run in self.work(choice) if run.done(root)]

    def report(self, rows: list[Row]) -> Report:
        return Report(
            tables={goal: goal_table(rows, goal) for goal in GOALS}, findings=findings(rows)
        )


STUDIES.add("table-1-2")(Tables12())


def runs(choice: Choice) -> Iterator[FederatedRun]:
    """One after the other those that share a federation."""
    for name in choice.columns:
        for seed in choice.seeds:
            for method in choice.methods:
                for group, params in groups(method, choice).items():
                    yield FederatedRun(
                        choice,
                        name,
                        group,
                        **place(name, choice.scale),
                        method=method,
                        params=params,
                        seed=seed,
                    )


def groups(method: str, choice: Choice) -> dict[str, Row]:
    """The method's default parameters; at the paper's scale its three groups, where there is
    something to vary."""
    if choice.defaults_only or choice.scale != "paper":
        return {"default": {}}
    return {f"group {i + 1}": params for i, params in enumerate(find_method(method).groups)} or {
        "default": {}
    }


def best(rows: list[Row], method: str, column: str, goal: str) -> dict[str, float] | None:
    """The best group's mean over seeds: last round, mean of the last ten, and the spread over
    groups and over seeds."""
    mine = [
        r for r in rows if (r["method"], r["column"]) == (method, column) and r[goal] is not None
    ]
    if not mine:
        return None
    by_group = {
        group: [r for r in mine if r["group"] == group]
        for group in {r["group"]: None for r in mine}
    }
    means = {group: mean(r[goal] for r in its) for group, its in by_group.items()}
    group = max(means, key=lambda name: means[name])
    numbers = {"last": means[group], "last_10": mean(r[f"{goal}_last_10"] for r in by_group[group])}
    if len(means) > 1:
        numbers["groups"] = stdev(means.values())
    if len(by_group[group]) > 1:
        numbers["seeds"] = stdev(r[goal] for r in by_group[group])
    return numbers


def goal_table(rows: list[Row], goal: str) -> Table:
    """For each column: last round, mean of the last ten, the paper's number, and the difference
    from it."""
    columns = [name for name in Tables12.columns if any(r["column"] == name for r in rows)]
    head = ["method"]
    for name in columns:
        head += [f"{name} last round", "last 10", "paper", "difference"]
    lines = []
    for method in ordered(rows):
        line = [METHODS[method].__name__ if method in METHODS else method]
        for name in columns:
            found, printed = best(rows, method, name, goal), PUBLISHED[goal].get((method, name))
            none = (
                "diverged"
                if any(
                    r["outcome"] == "diverged" and (r["method"], r["column"]) == (method, name)
                    for r in rows
                )
                else "-"
            )
            line.append(none if found is None else f"{found['last']:.1f}" + spread(found))
            line.append("-" if found is None else f"{found['last_10']:.1f}")
            line.append("-" if printed is None else f"{printed:.1f}")
            line.append(
                "-" if found is None or printed is None else signed(found["last"] - printed)
            )
        lines.append(line)
    return Table(GOALS[goal] + ", accuracy in %", head, lines)


def spread(found: dict[str, float]) -> str:
    parts = [f"{found[what]:.1f} over {what}" for what in ("groups", "seeds") if what in found]
    return f" (± {', '.join(parts)})" if parts else ""


def signed(value: float) -> str:
    return f"{value:+z.1f}".replace("-", "−")


def ordered(rows: list[Row]) -> list[str]:
    """The methods that have numbers, in the paper's order."""
    there = {r["method"] for r in rows}
    return [method for method in ORDER if method in there]


def findings(rows: list[Row]) -> list[str]:
    """Where FedAvg and MAP stand, column by column."""
    sentences = []
    for name in dict.fromkeys(r["column"] for r in rows):
        for goal in GOALS:
            scores = {
                m: found["last_10"] for m in ordered(rows) if (found := best(rows, m, name, goal))
            }
            if {"map", "fedavg"} <= scores.keys():
                place = 1 + sum(score > scores["map"] for score in scores.values())
                gain, first = (
                    signed(scores["map"] - scores["fedavg"]),
                    max(scores, key=lambda m: scores[m]),
                )
                sentences.append(
                    f"{name}, {goal}, mean of the last ten rounds: MAP is {gain} points from "
                    f"FedAvg and number {place} of {len(scores)}; "
                    f"the first is {first} with {scores[first]:.1f}."
                )
    return sentences
