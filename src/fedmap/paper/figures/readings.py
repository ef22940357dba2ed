"""Which reading of MAP carries the paper's claims: the printed and the released schedule, each with
three values of alpha."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import ClassVar

from fedmap.paper.federated import (
    FederatedRun,
    RunStudy,
    cut,
    failures,
    map_beside_fedavg,
    words,
)
from fedmap.paper.finding import signed
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, names_of
from fedmap.report.table import Table

READINGS = {
    f"{preset}, alpha {alpha:g}": {"preset": preset, "alpha": alpha}
    for preset in ("printed", "released")
    for alpha in (0.9, 0.5, 0.1)
}
FEDAVG = "default"  # the group of FedAvg's run
LAST_ROUND = {
    "global": "global",
    "personal": "personal",
    "personal, all clients": "personal_all_clients",
}
LAST_TEN_OF = "Mean of the last ten rounds (all clients: after the last)"
LAST_TEN = LAST_ROUND | {"global": "global_last_10", "personal": "personal_last_10"}


class Readings(RunStudy):
    """MAP's two schedules beside FedAvg."""

    line = (
        "The schedules of MAP that the paper prints and that its code has, with three values of "
        "alpha"
    )
    paper = "Algorithm 1"
    columns: ClassVar[Sequence[str]] = ["fashion-mnist/mlp", "fashion-mnist/lenet"]

    def cuts(self, scale: Scale) -> list[str]:
        return words(cut(scale))

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[:1] if scale == "smoke" else self.columns

    def work(self, choice: Choice) -> list[FederatedRun]:
        return map_beside_fedavg(choice, READINGS)

    def report(self, rows: list[Row]) -> Report:
        seeds = ", ".join(str(seed) for seed in names_of(rows, "seed"))
        about = (
            f"accuracy in % (seeds {seeds}; in brackets the mean difference from FedAvg with the "
            "same seed)"
        )
        tables = {
            "readings": table(f"{LAST_TEN_OF}, {about}", rows, LAST_TEN),
            "last-round": table(f"Last round, {about}", rows, LAST_ROUND),
        }
        return Report(tables, notes=failures(rows))


STUDIES.add("readings")(Readings())


def by_seed(rows: list[Row], column: str, group: str, name: str) -> dict[int, float]:
    """One number of each run that ended."""
    wanted = (column, group, "done")
    return {r["seed"]: r[name] for r in rows if (r["column"], r["group"], r["outcome"]) == wanted}


def differences(rows: list[Row], column: str, group: str, name: str) -> list[float]:
    """From FedAvg with the same seed, for each seed that both have."""
    values, plain = (by_seed(rows, column, which, name) for which in (group, FEDAVG))
    return [value - plain[seed] for seed, value in values.items() if seed in plain]


def table(caption: str, rows: list[Row], numbers: dict[str, str]) -> Table:
    """One line for each reading, one cell for each column and number."""
    columns = names_of(rows, "column")
    head = ["run", *(f"{column} {title}" for column in columns for title in numbers)]
    lines = []
    for group in names_of(rows, "group"):
        run = "FedAvg" if group == FEDAVG else f"MAP, {group}"
        names = numbers.values()
        lines.append([run, *(cell(rows, c, group, name) for c in columns for name in names)])
    return Table(caption, head, lines)


def cell(rows: list[Row], column: str, group: str, name: str) -> str:
    """Mean and spread over the seeds, and how far it is from FedAvg."""
    values = [*by_seed(rows, column, group, name).values()]
    gains = differences(rows, column, group, name) if group != FEDAVG else []
    parts = [f"{mean(values):.1f}"] if values else []
    parts += [f"± {stdev(values):.1f}"] if len(values) > 1 else []
    parts += [f"({signed(mean(gains))})"] if gains else []
    lost = (column, group, "diverged")
    parts += ["diverged" for r in rows if (r["column"], r["group"], r["outcome"]) == lost]
    return " ".join(parts) or "-"
