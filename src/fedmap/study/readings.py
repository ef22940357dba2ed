"""Which reading of MAP carries the paper's claims: the printed and the released schedule, each with three values of alpha."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import ClassVar

from fedmap.report.table import Table
from fedmap.study.base import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.study.federated import FederatedRun, cut, map_beside_fedavg, row, without_diverged, words
from fedmap.study.table_1_2 import signed

READINGS = {
    f"{preset}, alpha {alpha:g}": {"preset": preset, "alpha": alpha} for preset in ("printed", "released") for alpha in (0.9, 0.5, 0.1)
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
        rows, lost = without_diverged(rows)
        columns = list(dict.fromkeys(r["column"] for r in rows))
        head = ["run", *(f"{column} {goal}" for column in columns for goal in ("global", "personal", "personal, all clients"))]
        lines, better = [], []
        for group in dict.fromkeys(r["group"] for r in rows):
            line, above = ["FedAvg" if group == "default" else f"MAP, {group}"], []
            for column in columns:
                for name in ("global_last_10", "personal_last_10", "personal_all_clients"):
                    values, plain = (
                        {r["seed"]: r[name] for r in rows if (r["column"], r["group"]) == (column, g)} for g in (group, "default")
                    )
                    pairs = [value - plain[seed] for seed, value in values.items() if seed in plain]
                    line.append(cell(list(values.values()), pairs if group != "default" else []))
                    above.append(bool(pairs) and mean(pairs) > 0)
            if group != "default" and all(above[0::3]) and all(above[1::3]):
                better.append(group)
            lines.append(line)
        seeds = ", ".join(str(seed) for seed in dict.fromkeys(r["seed"] for r in rows))
        caption = (
            f"Mean of the last ten rounds, accuracy in % (seeds {seeds}; in brackets the mean difference from FedAvg with the same seed)"
        )
        sentence = f"Above FedAvg in both accuracies in every column: {'; '.join(better) if better else 'none'}."
        return Report({"readings": Table(caption, head, lines)}, {}, [sentence, *lost])


STUDIES.add("readings")(Readings())


def cell(values: list[float], differences: list[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}" + (f" ({signed(mean(differences))})" if differences else "")
