"""Federated runs as the work of the paper's studies: the columns of its tables, what each scale
cuts, and the rows of numbers."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from fedmap.data import defaults_of
from fedmap.experiment.runs import RunWork
from fedmap.methods import METHODS, parameters_of, variant
from fedmap.paper.finding import SEEDS, Estimate
from fedmap.paper.study import GOALS, Choice, Row, Scale, Study, names_of, require
from fedmap.simulate.result import STEADY
from fedmap.simulate.settings import NO_NUMBERS, Settings


class Column(NamedTuple):
    """A dataset with a network: a column of the paper's tables."""

    data: str
    net: str

    @property
    def name(self) -> str:
        return f"{self.data}/{self.net}"

    @property
    def rounds(self) -> int:
        """The paper's."""
        return defaults_of(self.data).rounds


COLUMNS = [
    Column("fashion-mnist", "mlp"),
    Column("fashion-mnist", "lenet"),
    Column("cifar-10", "tfcnn"),
    Column("cifar-10", "vgg8"),
    Column("cifar-100", "vgg8-bn"),
    Column("cifar-100", "vgg11"),
    Column("cinic-10", "resnet20"),
    Column("cinic-10", "resnet56"),
]
# at the paper's number of rounds a run of these takes over an hour: one seed has to do
LONG = {column.name for column in COLUMNS[2:]}
FEDAVG = ("fedavg", "default")
Who = tuple[str, str]  # a method and the group of its parameters
BY_NAME = {column.name: column for column in COLUMNS}

SMALL = {"samples": 6000, "clients": 20, "rounds": 60, "epochs": 5}
SMOKE = {
    "data": "fashion-mini",
    "samples": 200,
    "clients": 4,
    "fraction": 0.5,
    "rounds": 2,
    "epochs": 1,
    "batch": 16,
}

# the numbers of a finished run that every table of runs has, and where `final` keeps them
NUMBERS = {
    "global": "global_accuracy",
    f"global_last_{STEADY}": f"global_accuracy_last_{STEADY}",
    "personal": "personal_accuracy",
    f"personal_last_{STEADY}": f"personal_accuracy_last_{STEADY}",
    "personal_all_clients": "personal_accuracy_all_clients",
}


def cut(
    scale: Scale, small: dict[str, Any] = SMALL, smoke: dict[str, Any] = SMOKE
) -> dict[str, Any]:
    """The settings by which a scale is smaller than the paper; the dataset's own settings are the
    paper's."""
    cuts: dict[Scale, dict[str, Any]] = {"paper": {}, "small": small, "smoke": smoke}
    return cuts[scale]


def place(column: str, scale: Scale) -> dict[str, Any]:
    """The dataset and network of a column, with what the scale cuts."""
    return {"data": BY_NAME[column].data, "net": BY_NAME[column].net} | cut(scale)


def words(cuts: dict[str, Any]) -> list[str]:
    """What was cut, for people."""
    return [f"{name} {value}" for name, value in cuts.items()]


class FederatedRun(RunWork):
    """One run of a study, in one column and with one group of the method's parameters."""

    def __init__(self, choice: Choice, column: str, group: str = "default", **given: Any) -> None:
        self.column = column
        how = {name: getattr(choice, name) for name in NO_NUMBERS if hasattr(choice, name)}
        known = parameters_of(given["method"])
        asked = {name: value for name, value in choice.params.items() if name in known}
        params = given.get("params", {}) | asked
        settings = Settings.of(how | {"clip": choice.clip} | given | {"params": params})
        named = [] if group == "default" and asked else [group]
        self.group = ", ".join([*named, *in_words(asked)])
        more = "" if self.group == "default" else f" ({self.group})"
        super().__init__(settings, f"{settings.label}{more} {column} #{settings.seed}")


class RunStudy(Study):
    """A study of federated runs, each of which is one row."""

    def work(self, choice: Choice) -> Sequence[FederatedRun]:
        raise NotImplementedError

    def check(self, choice: Choice) -> None:
        if choice.params:
            runs = self.work(choice)
            known = {name for run in runs for name in parameters_of(run.settings.method)}
            require("parameter", list(choice.params), sorted(known))

    def where(self, run: FederatedRun) -> Row:
        settings = run.settings
        return {
            "column": run.column,
            "method": settings.label,
            "group": run.group,
            "seed": settings.seed,
            "rounds": settings.rounds,
            "clip": settings.clip,
        }

    def numbers(self, run: FederatedRun, root: Path) -> list[Row]:
        return [outcome(run, root)]


def in_words(params: dict[str, Any]) -> list[str]:
    """Each parameter with its value, as in the brackets of a variant."""
    return [f"{name}={value}" for name, value in params.items()]


def shown_name(method: str, group: str = "default") -> str:
    """What a table calls a method, or a variant of it."""
    name, own = variant(method)
    more = in_words(own) if own else [] if group == "default" else [group]
    return METHODS[name].__name__ + (f" ({', '.join(more)})" if more else "")


def contenders(
    methods: Sequence[str], groups: Callable[[str], dict[str, dict[str, Any]]]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """A group's name and the settings of its runs, for each group of each method. A variant such as
    `map[alpha=0.5]` is a group of its own."""
    for text in methods:
        method, own = variant(text)
        found = {", ".join(in_words(own)): own} if own else groups(method)
        for group, params in found.items():
            yield group, {"method": method, "params": params}


def map_beside_fedavg(choice: Choice, variants: dict[str, dict[str, Any]]) -> list[FederatedRun]:
    """FedAvg, and MAP with each of some sets of parameters, in every column with every seed."""
    found = []
    for name in choice.columns:
        given = place(name, choice.scale)
        for seed in choice.seeds:
            found.append(FederatedRun(choice, name, **given, method="fedavg", seed=seed))
            found += [
                FederatedRun(choice, name, group, **given, method="map", params=params, seed=seed)
                for group, params in variants.items()
            ]
    return found


def outcome(run: FederatedRun, root: Path) -> Row:
    """How a run ended, and its numbers; none where it diverged."""
    if run.diverged(root):
        return {"outcome": "diverged"} | dict.fromkeys([*NUMBERS, "per_client"])
    final = run.result(root).final
    numbers = {name: percent(final[key]) for name, key in NUMBERS.items()}
    return {"outcome": "done"} | numbers | {"per_client": per_client(final)}


def per_client(final: Row) -> str:
    """After the last round, every client's personal accuracy in per cent, in one cell."""
    accuracies = final["personal_accuracy_per_client"]
    return " ".join(f"{100 * accuracy:.2f}" for accuracy in accuracies)


def percent(share: float | None) -> float | None:
    """A share in per cent, with two digits."""
    return None if share is None else round(100 * share, 2)


def trusted(rows: list[Row]) -> list[Row]:
    """The rows that may decide: of runs that ended, where the method and group shares three seeds
    with FedAvg in the column, or has one where a run takes over an hour."""
    ended = [r for r in rows if r["outcome"] == "done"]
    seeds: dict[tuple[str, str, str], set[int]] = {}
    for r in ended:
        seeds.setdefault((r["column"], r["method"], r["group"]), set()).add(r["seed"])

    def shared(r: Row) -> set[int]:
        usual = seeds.get((r["column"], *FEDAVG), set())
        return seeds[r["column"], r["method"], r["group"]] & usual

    return [
        r
        for r in ended
        if len(shared(r)) >= SEEDS
        or (r["column"] in LONG and r["rounds"] >= BY_NAME[r["column"]].rounds)
    ]


def by_seed(
    rows: list[Row], ours: Who, other: Who, goal: str, column: str
) -> dict[int, list[float]]:
    """How far one is above another in a column where both have a run of the same seed. Global: of
    the mean of the last ten rounds. Personal: after the last round, one number for each client."""
    here = [r for r in rows if r["column"] == column]
    found = {(r["method"], r["group"], r["seed"]): values(r, goal) for r in here}
    gains = {}
    for (*who, seed), mine in found.items():
        theirs = found.get((*other, seed))
        if tuple(who) == ours and mine and theirs:
            gains[seed] = [a - b for a, b in zip(mine, theirs, strict=True)]
    return gains


def difference(rows: list[Row], ours: Who, other: Who, goal: str) -> Estimate | None:
    """How far one is above another: global over the seeds, personal over all clients; of several
    columns the mean, each of which counts as much. Columns with the same seeds divide the samples
    alike, so they are joined seed by seed and client by client."""
    every = (by_seed(rows, ours, other, goal, column) for column in names_of(rows, "column"))
    found = [sorted(gains.items()) for gains in every if gains]
    if not found:
        return None
    columns = [[gain for _, some in gains for gain in some] for gains in found]
    kinds = {tuple((seed, len(some)) for seed, some in gains) for gains in found}
    return Estimate.of_columns(columns, paired=len(kinds) == 1)


def average(rows: list[Row], who: Who, number: str) -> float:
    """One number of a method and group, mean over seeds in each column and then over columns."""
    mine = [r for r in rows if (r["method"], r["group"]) == who]
    columns = names_of(mine, "column")
    return float(mean(mean(r[number] for r in mine if r["column"] == c) for c in columns))


def gains_of(rows: list[Row], who: Who) -> str | None:
    """The differences from FedAvg in both goals, in words; none where one is not known."""
    gains = [difference(rows, who, FEDAVG, goal) for goal in GOALS]
    return None if None in gains else f"{gains[0]} global and {gains[1]} personal"


def values(r: Row, goal: str) -> list[float]:
    """What two runs are compared by; nothing where a run has no such number."""
    if goal == "global":
        return [] if r["global_last_10"] is None else [r["global_last_10"]]
    return [float(cell) for cell in str(r.get("per_client") or "").split()]


def failures(rows: list[Row]) -> list[str]:
    """A sentence for each run that diverged."""
    return [
        f"{shown_name(r['method'], r['group'])} on {r['column']}, seed {r['seed']}, diverged and "
        "is left out."
        for r in rows
        if r["outcome"] == "diverged"
    ]


def without_diverged(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The runs that ended, of groups that ended in every column and with every seed; and a sentence
    for each that did not."""
    lost = [r for r in rows if r["outcome"] == "diverged"]
    groups = {(r["method"], r["group"]) for r in lost}
    sentences = [
        f"{r['method']} ({r['group']}) on {r['column']}, seed {r['seed']}, diverged; this group is "
        "left out."
        for r in lost
    ]
    return [r for r in rows if (r["method"], r["group"]) not in groups], sentences


def comparable(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The rows whose averages can be compared: of the columns that every method has numbers in,
    with enough seeds for a verdict if there is such a column. A sentence for each thing left
    out."""
    rows, sentences = without_diverged(rows)
    methods, columns = everyone(rows), names_of(rows, "column")
    for kept, what in ((trusted(rows), "enough seeds"), (rows, "a number")):
        there = {c: everyone([r for r in kept if r["column"] == c]) for c in columns}
        whole = [c for c in columns if len(there[c]) == len(methods)]
        if whole:
            sentences += [
                f"{c} is left out of the averages: {len(there[c])} of {len(methods)} rows have "
                f"{what} there."
                for c in columns
                if c not in whole
            ]
            return [r for r in kept if r["column"] in whole], sentences
    return rows, sentences


def everyone(rows: list[Row]) -> list[Who]:
    """Every method and group that has a row."""
    return list(dict.fromkeys((r["method"], r["group"]) for r in rows))
