"""Table 3: complete classes. Samples are shared out by a Dirichlet distribution, and the restricted
softmax goes by class shares."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

from fedmap.methods import METHODS
from fedmap.paper.federated import FederatedRun, cut, place, row, without_diverged, words
from fedmap.paper.published import COMPLETE
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.paper.tables.table_1_2 import signed
from fedmap.report.table import Table

# The printed factor n_c / sum n is about 1/C for every class, so it shrinks all gradients; n_c /
# max n is what the authors' code has.
SHARES: dict[str, dict[str, Any]] = {
    "n_c / sum n, as printed": {"mode": "share"},
    "n_c / max n": {"mode": "soft", "alpha": 0.0},
}


class Table3(Study):
    line = (
        "Complete classes: 11 methods on data shared out by a Dirichlet distribution with alpha 0.5"
    )
    paper = "Table 3"
    columns: ClassVar[Sequence[str]] = [
        "fashion-mnist/lenet",
        "cifar-10/tfcnn",
        "cifar-100/vgg8-bn",
    ]
    methods: ClassVar[Sequence[str]] = list(COMPLETE)

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return {"paper": self.columns, "small": self.columns[:2], "smoke": self.columns[:1]}[scale]

    def cuts(self, scale: Scale) -> list[str]:
        more = {"paper": [], "small": ["without cifar-100/vgg8-bn"], "smoke": ["one column"]}[scale]
        return [*words(cut(scale)), *more, "default parameters instead of the best of three groups"]

    def work(self, choice: Choice) -> list[FederatedRun]:
        scene = {"partition": "dirichlet", "partition_params": {"alpha": 0.5}}
        return [
            FederatedRun(
                choice,
                name,
                group,
                **place(name, choice.scale),
                **scene,
                method=method,
                params=params,
                seed=seed,
            )
            for name in choice.columns
            for seed in choice.seeds
            for method in choice.methods
            for group, params in (SHARES if method in ("fedrs", "map") else {"default": {}}).items()
        ]

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [row(run, root) for run in self.work(choice) if run.done(root)]

    def report(self, rows: list[Row]) -> Report:
        rows, lost = without_diverged(rows)
        rows, unfinished = of_finished_columns(rows)
        columns = list(dict.fromkeys(r["column"] for r in rows))
        # an average over other columns is not to be compared with the paper's
        same = columns == list(self.columns)
        plain = [r for r in rows if r["method"] == "fedavg"]
        lines, scores = [], {}
        for method, group in dict.fromkeys((r["method"], r["group"]) for r in rows):
            mine = [r for r in rows if (r["method"], r["group"]) == (method, group)]
            line = [METHODS[method].__name__ + ("" if group == "default" else f" ({group})")]
            for goal, printed, fedavg in zip(
                ("global", "personal"), COMPLETE[method], COMPLETE["fedavg"], strict=True
            ):
                last, last_10 = (
                    mean(r[f"{goal}{name}"] for r in mine) for name in ("", "_last_10")
                )
                scores[goal, method, group] = last_10
                line += [
                    f"{last:.1f}",
                    f"{last_10:.1f}",
                    signed(last_10 - mean(r[f"{goal}_last_10"] for r in plain)) if plain else "-",
                ]
                line += [f"{printed:.1f}", signed(printed - fedavg)]
                line += [signed(last - printed)] if same else []
            lines.append(line)
        head = ["method"]
        for goal in ("global", "personal"):
            head += [
                f"{goal}, last round",
                "last 10",
                "from FedAvg",
                "paper",
                "from FedAvg",
                *(["difference"] if same else []),
            ]
        table = Table(
            f"Complete classes, accuracy in %, average over {', '.join(columns)}", head, lines
        )
        return Report({"complete": table}, {}, [*verdicts(scores), *lost, *unfinished])


STUDIES.add("table-3")(Table3())


def of_finished_columns(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Without columns that some method has no number in: averages are over the same columns for
    all."""
    methods = {(r["method"], r["group"]) for r in rows}
    there: dict[str, set[tuple[str, str]]] = {}
    for r in rows:
        there.setdefault(r["column"], set()).add((r["method"], r["group"]))
    left_out = [column for column, its in there.items() if its != methods]
    if len(left_out) == len(there):
        return rows, []
    sentences = [
        f"{column} is left out of the averages: {len(there[column])} of {len(methods)} rows have a "
        "number there."
        for column in left_out
    ]
    return [r for r in rows if r["column"] not in left_out], sentences


def verdicts(scores: dict[tuple[str, str, str], float]) -> list[str]:
    """MAP against FedAvg for each reading of the class share."""
    return [
        f"{goal}, mean of the last ten rounds: {method} with factors {group} is "
        f"{signed(score - scores[goal, 'fedavg', 'default'])} points from FedAvg."
        for (goal, method, group), score in scores.items()
        if group != "default" and (goal, "fedavg", "default") in scores
    ]
