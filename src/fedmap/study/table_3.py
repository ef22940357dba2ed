"""Table 3: complete classes. Samples are shared out by a Dirichlet distribution, and the restricted softmax goes by class shares."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

from fedmap.methods import METHODS
from fedmap.report.table import Table
from fedmap.study.base import STUDIES, Choice, Report, Row, Scale, Study
from fedmap.study.federated import FederatedRun, cut, place, row, without_diverged, words
from fedmap.study.published import COMPLETE
from fedmap.study.table_1_2 import signed

# The printed factor n_c / sum n is about 1/C for every class, so it shrinks all gradients; n_c / max n is what the authors' code has.
SHARES: dict[str, dict[str, Any]] = {"n_c / sum n, as printed": {"mode": "share"}, "n_c / max n": {"mode": "soft", "alpha": 0.0}}


class Table3(Study):
    line = "Complete classes: 11 methods on data shared out by a Dirichlet distribution with alpha 0.5"
    paper = "Table 3"
    columns: ClassVar[Sequence[str]] = ["fashion-mnist/lenet", "cifar-10/tfcnn", "cifar-100/vgg8-bn"]
    methods: ClassVar[Sequence[str]] = list(COMPLETE)

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return {"paper": self.columns, "small": self.columns[:2], "smoke": self.columns[:1]}[scale]

    def cuts(self, scale: Scale) -> list[str]:
        more = {"paper": [], "small": ["without cifar-100/vgg8-bn"], "smoke": ["one column"]}[scale]
        return [*words(cut(scale)), *more, "default parameters instead of the best of three groups"]

    def work(self, choice: Choice) -> list[FederatedRun]:
        scene = {"partition": "dirichlet", "partition_params": {"alpha": 0.5}}
        return [
            FederatedRun(choice, name, group, **place(name, choice.scale), **scene, method=method, params=params, seed=seed)
            for name in choice.columns
            for seed in choice.seeds
            for method in choice.methods
            for group, params in (SHARES if method in ("fedrs", "map") else {"default": {}}).items()
        ]

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [row(run, root) for run in self.work(choice) if run.done(root)]

    def report(self, rows: list[Row]) -> Report:
        rows, lost = without_diverged(rows)
        columns = list(dict.fromkeys(r["column"] for r in rows))
        lines, scores = [], {}
        for method, group in dict.fromkeys((r["method"], r["group"]) for r in rows):
            mine = [r for r in rows if (r["method"], r["group"]) == (method, group)]
            line = [METHODS[method].__name__ + ("" if group == "default" else f" ({group})")]
            for goal, printed in zip(("global", "personal"), COMPLETE[method], strict=True):
                average = {name: mean(r[f"{goal}{name}"] for r in mine) for name in ("", "_last_10")}
                scores[goal, method, group] = average["_last_10"]
                each = [mean(r[goal] for r in mine if r["column"] == column) for column in columns]
                line += [f"{average['']:.1f}", f"{average['_last_10']:.1f}", f"{printed:.1f}", signed(average[""] - printed)]
                line += [f"{value:.1f}" for value in each] if len(columns) > 1 else []
            lines.append(line)
        head = ["method"]
        for goal in ("global", "personal"):
            head += [f"{goal}, last round", "last 10", "paper", "difference", *(columns if len(columns) > 1 else [])]
        table = Table(f"Complete classes, accuracy in %, average over {', '.join(columns)}", head, lines)
        return Report({"complete": table}, {}, [*verdicts(scores), *lost])


STUDIES.add("table-3")(Table3())


def verdicts(scores: dict[tuple[str, str, str], float]) -> list[str]:
    """MAP against FedAvg for each reading of the class share."""
    return [
        f"{goal}, mean of the last ten rounds: {method} with factors {group} is "
        f"{signed(score - scores[goal, 'fedavg', 'default'])} points from FedAvg."
        for (goal, method, group), score in scores.items()
        if group != "default" and (goal, "fedavg", "default") in scores
    ]
