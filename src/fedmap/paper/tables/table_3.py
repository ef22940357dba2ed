"""Table 3: complete classes. Samples are divided by a Dirichlet distribution, and the restricted
softmax goes by class shares."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any, ClassVar

from fedmap.paper.federated import (
    FEDAVG,
    FederatedRun,
    RunStudy,
    Who,
    average,
    comparable,
    contenders,
    cut,
    difference,
    everyone,
    gains_of,
    place,
    shown_name,
    trusted,
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
from fedmap.paper.tables.table_1_2 import STEADIEST
from fedmap.report.table import Table

# The printed factor n_c / sum n is about 1/C for every class, so it shrinks all gradients. The
# authors' code has alpha + (1 - alpha) n_c / max n.
SHARES: dict[str, dict[str, Any]] = {
    "n_c / sum n, as printed": {"mode": "share"},
    "released, alpha 0.9": {"mode": "soft", "alpha": 0.9},
    "released, alpha 0.5": {"mode": "soft", "alpha": 0.5},
}
PRINTED, USUAL = ("map", "n_c / sum n, as printed"), ("map", "released, alpha 0.9")
KEPT = "n_c / sum n, kept in answers"
GROUPS: dict[str, dict[str, dict[str, Any]]] = {
    "map": SHARES,
    "fedrs": SHARES | {KEPT: {"mode": "share", "factors": True}},
}


class Table3(RunStudy):
    """Eleven methods; FedRS and MAP with the readings of the class share."""

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


def factors_of(who: Who) -> str | None:
    """By what reading a method's training is restricted, if it is."""
    method, group = who
    return None if method not in GROUPS else PRINTED[1] if group == KEPT else group


def spread(rows: list[Row], who: Who, number: str) -> str:
    """That average, with the standard deviation over the seeds that it has in every column."""
    mine = [r for r in rows if (r["method"], r["group"]) == who]
    by_seed: dict[int, list[float]] = {}
    for r in mine:
        by_seed.setdefault(r["seed"], []).append(r[number])
    columns = len(names_of(mine, "column"))
    whole = [mean(found) for found in by_seed.values() if len(found) == columns]
    more = f" ± {stdev(whole):.1f}" if len(whole) > 1 else ""
    return f"{average(rows, who, number):.1f}{more}"


def table(rows: list[Row]) -> Table:
    """Our averages and the paper's, each beside FedAvg's."""
    columns = names_of(rows, "column")
    head = ["method"]
    for goal, steady in (("global", "last 10"), ("personal", "all clients")):
        head += [f"{goal}, {steady}", "from FedAvg", "last round", "paper", "from FedAvg"]
    lines = [
        [shown_name(*who), *(cell for goal in GOALS for cell in cells(rows, who, goal))]
        for who in everyone(rows)
    ]
    caption = (
        f"Complete classes, accuracy in %, average over {', '.join(columns)} ± standard deviation "
        "over seeds, and differences ± standard error; the paper's average is over its three "
        "columns, so compare differences"
    )
    return Table(caption, head, lines)


def cells(rows: list[Row], who: Who, goal: str) -> list[str]:
    """A line's numbers for one goal."""
    paper = {method: printed[GOALS.index(goal)] for method, printed in COMPLETE.items()}
    gain = difference(rows, who, FEDAVG, goal)
    return [
        spread(rows, who, STEADIEST[goal]),
        "-" if gain is None or who == FEDAVG else str(gain),
        f"{average(rows, who, goal):.1f}",
        f"{paper[who[0]]:.1f}",
        signed(paper[who[0]] - paper["fedavg"]),
    ]


def notes(rows: list[Row]) -> list[str]:
    """FedRS and MAP against FedAvg for each reading of the class share."""
    found = {who: gains_of(rows, who) for who in everyone(rows) if who[1] != "default"}
    return [f"{shown_name(*who)} from FedAvg: {gain}." for who, gain in found.items() if gain]


def first_in_both(claim: str, rows: list[Row]) -> Finding:
    """MAP, with one reading of the class share, is above every other method in both accuracies; in
    part: in one of them it is above FedAvg and nobody's mean is higher. FedRS with the same factors
    does not count globally: its global model is the same."""
    rows, _ = comparable(trusted(rows))
    readings = [who for who in everyone(rows) if who[0] == "map"]
    told = {who: gain for who in readings if (gain := gains_of(rows, who))}
    if not told:
        return not_tested(claim, "MAP or FedAvg has not enough seeds")
    others = [who for who in everyone(rows) if who[0] != "map"]

    def above(ours: Who, other: Who, goal: str) -> bool:
        gain = difference(rows, ours, other, goal)
        return gain is not None and gain.above

    def level(who: Who, goal: str) -> float:
        return average(rows, who, STEADIEST[goal])

    def compared(ours: Who, goal: str) -> list[Who]:
        return [o for o in others if goal == "personal" or factors_of(o) != factors_of(ours)]

    def best(ours: Who, goal: str) -> Who:
        return max(compared(ours, goal), key=lambda who: level(who, goal))

    first = any(all(above(w, o, goal) for goal in GOALS for o in compared(w, goal)) for w in told)
    better = any(
        above(w, FEDAVG, goal) and level(w, goal) >= level(best(w, goal), goal)
        for w in told
        for goal in GOALS
    )
    shown = USUAL if USUAL in told else next(iter(told))
    numbers = "; ".join(f"{group}: {gain} from FedAvg" for (_, group), gain in told.items())
    rivals = " and ".join(
        f"{goal} {difference(rows, shown, best(shown, goal), goal)} from "
        f"{shown_name(*best(shown, goal))}"
        for goal in GOALS
    )
    numbers += f"; beside the best others, {shown_name(*shown)} is {rivals}"
    columns = names_of(rows, "column")
    short = f"{shown[1]}: {rivals}, the best others"
    if PRINTED in told and shown != PRINTED:
        short = f"{PRINTED[1]}: {told[PRINTED]} from FedAvg; {short}"
    short += f", {len(columns)} of {len(Table3.columns)} columns"
    missing = len(columns) < len(Table3.columns)
    return Finding(claim, Verdict.of(first, better), numbers, short, missing)
