"""Which reading of MAP carries the paper's claims: the printed and the released schedule, each with
three values of alpha."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import ClassVar

from fedmap.paper.federated import FederatedRun, cut, map_beside_fedavg, row, words
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.paper.tables.table_1_2 import signed
from fedmap.report.table import Table

READINGS = {
    f"{preset}, alpha {alpha:g}": {"preset": preset, "alpha": alpha}
    for preset in ("printed", "released")
    for alpha in (0.9, 0.5, 0.1)
}


class Readings(Study):
    line = "The schedules of MAP that the paper prints and that its code has, with three values of alpha"
    paper = "Algorithm 1"
    columns: ClassVar[Sequence[str]] = ["fashion-mnist/mlp", "fashion-mnist/lenet"]

    def cuts(self, scale: Scale) -> list[str]:
        return words(cut(scale))

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[:1] if scale == "smoke" else self.columns

    def work(self, choice: Choice) -> list[FederatedRun]:
        return map_beside_fedavg(choice, READINGS)

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [row(run, root) for run in self.work(choice) if run.done(root)]

    def report(self, rows: list[Row]) -> Report:
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(r["seed"] for r in rows))
        about = f"accuracy in % (seeds {seeds}; in brackets the mean difference from FedAvg with the same seed)"
        goals = {
            "global": "global",
            "personal": "personal",
            "personal, all clients": "personal_all_clients",
        }
        steadier = goals | {"global": "global_last_10", "personal": "personal_last_10"}
        tables = {
            "readings": table(f"Mean of the last ten rounds, {about}", rows, steadier),
            "last-round": table(f"Last round, {about}", rows, goals),
        }
        better = [group for group in READINGS if above_fedavg(rows, group)]
        lost = [
            f"{r['method']} ({r['group']}) on {r['column']}, seed {r['seed']}, diverged."
            for r in rows
            if r["outcome"] == "diverged"
        ]
        return Report(
            tables,
            {},
            [
                "Above FedAvg in both accuracies in every column: "
                f"{'; '.join(better) if better else 'none'}.",
                *lost,
            ],
        )


STUDIES.add("readings")(Readings())


def by_seed(rows: list[Row], column: str, group: str, name: str) -> dict[int, float]:
    """One number of each run that ended."""
    return {
        r["seed"]: r[name]
        for r in rows
        if (r["column"], r["group"], r["outcome"]) == (column, group, "done")
    }


def differences(rows: list[Row], column: str, group: str, name: str) -> list[float]:
    """From FedAvg with the same seed, for each seed that both have."""
    values, plain = (by_seed(rows, column, which, name) for which in (group, "default"))
    return [value - plain[seed] for seed, value in values.items() if seed in plain]


def above_fedavg(rows: list[Row], group: str) -> bool:
    """In both accuracies, averaged over all of FedAvg's seeds, in every column. One that diverged
    with a seed is not."""
    for column in names_of(rows, "column"):
        for name in ("global_last_10", "personal_last_10"):
            gains = differences(rows, column, group, name)
            if (
                not gains
                or len(gains) < len(by_seed(rows, column, "default", name))
                or mean(gains) <= 0
            ):
                return False
    return True


def table(caption: str, rows: list[Row], goals: dict[str, str]) -> Table:
    columns = names_of(rows, "column")
    head = ["run", *(f"{column} {goal}" for column in columns for goal in goals)]
    lines = [
        [
            "FedAvg" if group == "default" else f"MAP, {group}",
            *(cell(rows, column, group, name) for column in columns for name in goals.values()),
        ]
        for group in names_of(rows, "group")
    ]
    return Table(caption, head, lines)


def cell(rows: list[Row], column: str, group: str, name: str) -> str:
    """Mean and spread over the seeds, and how far it is from FedAvg."""
    values = [*by_seed(rows, column, group, name).values()]
    gains = differences(rows, column, group, name) if group != "default" else []
    parts = [f"{mean(values):.1f}"] if values else []
    parts += [f"± {stdev(values):.1f}"] if len(values) > 1 else []
    parts += [f"({signed(mean(gains))})"] if gains else []
    parts += [
        "diverged"
        for r in rows
        if (r["column"], r["group"], r["outcome"]) == (column, group, "diverged")
    ]
    return " ".join(parts) or "-"


def names_of(rows: list[Row], what: str) -> list[str]:
    return list(dict.fromkeys(r[what] for r in rows))
