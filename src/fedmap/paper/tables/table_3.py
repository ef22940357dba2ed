"""Table 3: complete classes. Samples are divided by a Dirichlet distribution, and the restricted
softmax goes by class shares."""

from collections.abc import Sequence
from statistics import mean
from typing import Any, ClassVar

from fedmap.methods import METHODS
from fedmap.paper.federated import (
    FederatedRun,
    RunStudy,
    contenders,
    cut,
    place,
    without_diverged,
    words,
)
from fedmap.paper.finding import Finding, Verdict, not_tested, signed
from fedmap.paper.published import COMPLETE
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

# The printed factor n_c / sum n is about 1/C for every class, so it shrinks all gradients. The
# authors' code has alpha + (1 - alpha) n_c / max n.
SHARES: dict[str, dict[str, Any]] = {
    "n_c / sum n, as printed": {"mode": "share"},
    "released, alpha 0.9": {"mode": "soft", "alpha": 0.9},
    "released, alpha 0.5": {"mode": "soft", "alpha": 0.5},
}
KEPT = "n_c / sum n, kept in answers"
GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "map": SHARES,
    "fedrs": SHARES | {KEPT: {"mode": "share", "factors": True}},
}
Averages = dict[tuple[str, str], float]  # of a method with a group of parameters
FEDAVG = ("fedavg", "default")


class Table3(RunStudy):
    """Eleven methods; FedRS and MAP with both readings of the class share."""

    line = "Complete classes: 11 methods on data divided by a Dirichlet distribution with alpha 0.5"
    paper = "Table 3"
    columns: ClassVar[Sequence[str]] = [
        "fashion-mnist/lenet",
        "cifar-10/tfcnn",
        "cifar-100/vgg8-bn",
    ]
    methods: ClassVar[Sequence[str]] = list(COMPLETE)

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[: {"small": 2, "smoke": 1}.get(scale)]

    def cuts(self, scale: Scale) -> list[str]:
        more = {"paper": [], "small": ["without cifar-100/vgg8-bn"], "smoke": ["one column"]}[scale]
        return [*words(cut(scale)), *more, "default parameters instead of the best of three groups"]

    def work(self, choice: Choice) -> list[FederatedRun]:
        scene: Row = {"partition": "dirichlet", "partition_params": {"alpha": 0.5}}
        return [
            FederatedRun(
                choice, name, group, **place(name, choice.scale), **scene, **run, seed=seed
            )
            for name in choice.columns
            for seed in choice.seeds
            for group, run in contenders(choice.methods, groups)
        ]

    def report(self, rows: list[Row]) -> Report:
        rows, left_out = comparable(rows)
        return Report({"complete": table(rows)}, notes=[*notes(rows), *left_out])

    def claims(self) -> list[Claim]:
        return [Claim("With complete classes MAP is first in both", first_in_both)]


STUDIES.add("table-3")(Table3())


def groups(method: str) -> dict[str, dict[str, Any]]:
    """The readings of the class share, where a method has them."""
    return GROUPS.get(method, {"default": {}})


def comparable(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The rows whose averages can be compared, and a sentence for each thing left out."""
    rows, diverged = without_diverged(rows)
    rows, unfinished = of_finished_columns(rows)
    return rows, [*diverged, *unfinished]


def of_finished_columns(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Without columns that some method has no number in: averages are over the same columns for
    all."""
    methods = {(r["method"], r["group"]) for r in rows}
    there: dict[str, set[tuple[str, str]]] = {}
    for r in rows:
        there.setdefault(r["column"], set()).add((r["method"], r["group"]))
    left_out = [column for column, found in there.items() if found != methods]
    if len(left_out) == len(there):
        return rows, []
    sentences = [
        f"{column} is left out of the averages: {len(there[column])} of {len(methods)} rows have a "
        "number there."
        for column in left_out
    ]
    return [r for r in rows if r["column"] not in left_out], sentences


def averages(rows: list[Row], number: str) -> Averages:
    """One number of each method and group, mean over columns and seeds."""
    found: dict[tuple[str, str], list[float]] = {}
    for r in rows:
        found.setdefault((r["method"], r["group"]), []).append(r[number])
    return {key: mean(values) for key, values in found.items()}


def table(rows: list[Row]) -> Table:
    """Our averages and the paper's, each beside FedAvg's."""
    columns = names_of(rows, "column")
    # an average over other columns is not to be compared with the paper's
    same = columns == list(Table3.columns)
    head = ["method"]
    for goal in GOALS:
        head += [f"{goal}, last round", "last 10", "from FedAvg", "paper", "from FedAvg"]
        head += ["difference"] if same else []
    lines = {
        (method, group): [METHODS[method].__name__ + ("" if group == "default" else f" ({group})")]
        for method, group in averages(rows, "global")
    }
    for i, goal in enumerate(GOALS):
        paper = {method: printed[i] for method, printed in COMPLETE.items()}
        last, last_10 = averages(rows, goal), averages(rows, f"{goal}_last_10")
        for key, line in lines.items():
            gain = signed(last_10[key] - last_10[FEDAVG]) if FEDAVG in last_10 else "-"
            line += [f"{last[key]:.1f}", f"{last_10[key]:.1f}", gain]
            line += [f"{paper[key[0]]:.1f}", signed(paper[key[0]] - paper["fedavg"])]
            line += [signed(last[key] - paper[key[0]])] if same else []
    caption = f"Complete classes, accuracy in %, average over {', '.join(columns)}"
    return Table(caption, head, list(lines.values()))


def notes(rows: list[Row]) -> list[str]:
    """FedRS and MAP against FedAvg for each reading of the class share."""
    found = {goal: averages(rows, f"{goal}_last_10") for goal in GOALS}
    return [
        f"{goal}, mean of the last ten rounds: {method} with factors {group} is "
        f"{signed(found[goal][method, group] - found[goal][FEDAVG])} points from FedAvg."
        for method, group in found["global"]
        if group != "default" and FEDAVG in found["global"]
        for goal in GOALS
    ]


def first_in_both(claim: str, rows: list[Row]) -> Finding:
    """MAP, with the better of the two readings of the class share, is above all others in both
    accuracies; in part: above FedAvg in one."""
    rows, _ = comparable(rows)
    if not {"map", "fedavg"} <= {r["method"] for r in rows}:
        return not_tested(claim, "MAP or FedAvg has no number")
    parts, won, above = [], [], []
    for goal in GOALS:
        found = averages(rows, f"{goal}_last_10")
        ours = {group: value for (method, group), value in found.items() if method == "map"}
        others = {key: value for key, value in found.items() if key[0] != "map"}
        first = max(others, key=lambda key: others[key])
        won.append(max(ours.values()) > others[first])
        above.append(max(ours.values()) > others[FEDAVG])
        readings = ", ".join(f"{value:.1f} with {group}" for group, value in ours.items())
        parts.append(
            f"{goal}: MAP {readings}; FedAvg {others[FEDAVG]:.1f}; the best other is "
            f"{first[0]} with {others[first]:.1f}"
        )
    return Finding(claim, Verdict.of(all(won), any(above)), "; ".join(parts))
