"""Federated runs as the work of a study. A run that several studies need is done once."""

import json
import time
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from fedmap.client import MIN_STEPS
from fedmap.data import load
from fedmap.errors import DivergenceError
from fedmap.experiment.work import OnStep
from fedmap.federation import Federation, partition
from fedmap.paper.study import Choice, Row, Scale
from fedmap.simulate import Result, Run, Settings
from fedmap.simulate.folder import write_atomically
from fedmap.simulate.run import one_thread
from fedmap.simulate.store import StateStore
from fedmap.simulate.tasks import Workshop


class Column(NamedTuple):
    """A dataset with a network: a column of the paper's tables."""

    data: str
    net: str

    @property
    def name(self) -> str:
        return f"{self.data}/{self.net}"


COLUMNS = [
    Column("fashion-mnist", "mlp"), Column("fashion-mnist", "lenet"),
    Column("cifar-10", "tfcnn"), Column("cifar-10", "vgg8"),
    Column("cifar-100", "vgg8-bn"), Column("cifar-100", "vgg11"),
    Column("cinic-10", "resnet20"), Column("cinic-10", "resnet56"),
]  # fmt: skip
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


@lru_cache(maxsize=1)
def _federation(made: str) -> Federation:
    return Settings.model_validate_json(made).federation()


def federation_of(made: Settings) -> Federation:
    """The federation of some settings; runs of one federation, one after the other, share it."""
    names = {
        "data",
        "data_dir",
        "samples",
        "partition",
        "partition_params",
        "clients",
        "partition_seed",
        "method",
    }
    return _federation(made.model_copy(update={"method": "fedavg"}).model_dump_json(include=names))


_measured: dict[tuple[str, str, int], float] = {}


def seconds_a_training_step(data: str, net: str, batch: int, federation: Federation) -> float:
    """Of FedAvg with this network, once for each dataset, network and batch size."""
    key = (data, net, batch)
    if key not in _measured:
        made = Settings.of(
            {"data": data, "net": net, "batch": batch, "method": "fedavg", "epochs": 1e-9}
        )
        _measured[key] = seconds_of_a_client(made, federation) / MIN_STEPS
    return _measured[key]


@lru_cache
def _seconds_on_a_small_net(method: str, params: str) -> float:
    federation = partition(load("synthetic"), 2, kind="iid")
    epochs = 20 * 64 / float(federation.counts[0].sum())  # twenty steps: enough for a second stage
    made = Settings.of(
        {
            "data": "synthetic",
            "net": "lenet",
            "epochs": epochs,
            "method": method,
            "params": json.loads(params),
        }
    )
    return seconds_of_a_client(made, federation)


def cost(method: str, **params: Any) -> float:
    """How many times FedAvg's time a method's local round takes, measured on a small net."""
    own, plain = (
        _seconds_on_a_small_net(name, json.dumps(its, sort_keys=True))
        for name, its in ((method, params), ("fedavg", {}))
    )
    return max(own / plain, 1.0)


def seconds_of_a_client(made: Settings, federation: Federation) -> float:
    """The faster of two local rounds of a client in this process."""
    run = Run(made, federation)
    down = run.method.download(run.method.start(run.initial))
    store = StateStore(run.method.client_state(run.initial), len(federation), None)
    workshop = Workshop(federation, run.method, run.settings, 0, run.bench, store)
    seconds = []
    with one_thread():
        for _ in range(2):
            began = time.perf_counter()
            workshop.do("train", 1, 0, down)
            seconds.append(time.perf_counter() - began)
    return min(seconds)


class FederatedRun:
    """One run, in the folder that `fedmap run` would give it."""

    def __init__(self, choice: Choice, column: str, group: str = "default", **given: Any) -> None:
        self.column = column
        self.group = group
        self.settings = Settings.of(
            {"workers": choice.workers, "data_dir": choice.data_dir} | given
        )

    @cached_property
    def resolved(self) -> Settings:
        return self.settings.resolved(federation_of(self.settings))

    @property
    def name(self) -> str:
        return self.resolved.name

    @property
    def label(self) -> str:
        more = "" if self.group == "default" else f" ({self.group})"
        return f"{self.settings.label}{more} {self.column} #{self.settings.seed}"

    @property
    def steps(self) -> int:
        return self.settings.rounds

    def done(self, root: Path) -> bool:
        return (root / self.name / "done").exists() or self.diverged(root)

    def diverged(self, root: Path) -> bool:
        """Did its training leave the finite numbers? A study goes on without it, and says so."""
        return (root / self.name / "diverged").exists()

    def seconds_a_step(self) -> float:
        """A round's training steps and the scoring of the global model, at the speed of a few steps
        now, shared by the workers."""
        federation, made = federation_of(self.settings), self.resolved
        clients = max(made.fraction * len(federation), 1)
        steps = max(
            federation.counts.sum(1).float().mean().item() / made.batch * made.epochs, MIN_STEPS
        )
        scoring = len(federation.test_y) / made.batch / 3  # a forward pass is a third of a step
        step = seconds_a_training_step(made.data, made.net or "", made.batch, federation)
        return step * (clients * steps * cost(made.method, **made.params) + scoring) / made.workers

    def go(self, root: Path, on_step: OnStep) -> None:
        def on_round(record: Row) -> None:
            both = (record["global_accuracy"], record["personal_accuracy"])
            on_step(
                record["round"],
                "  ".join("  -  " if value is None else f"{100 * value:.1f}%" for value in both),
            )

        try:
            Run(self.resolved, federation_of(self.settings), root / self.name).go(True, on_round)
        except DivergenceError as sentence:
            write_atomically(root / self.name / "diverged", f"{sentence}\n".encode())
            on_step(self.steps, "diverged")

    def result(self, root: Path) -> Result:
        return Result.read(root / self.name)


def map_beside_fedavg(choice: Choice, variants: dict[str, dict[str, Any]]) -> list[FederatedRun]:
    """FedAvg, and MAP with each of some sets of parameters, in every column with every seed."""
    found = []
    for name in choice.columns:
        given = place(name, choice.scale)
        for seed in choice.seeds:
            found.append(FederatedRun(choice, name, **given, method="fedavg", seed=seed))
            found += [
                FederatedRun(choice, name, group, **given, method="map", params=its, seed=seed)
                for group, its in variants.items()
            ]
    return found


def row(run: FederatedRun, root: Path) -> Row:
    """The numbers of a finished run that every table of runs has."""
    made = run.settings
    names = {
        "global": "global_accuracy",
        "global_last_10": "global_accuracy_last_10",
        "personal": "personal_accuracy",
        "personal_last_10": "personal_accuracy_last_10",
        "personal_all_clients": "personal_accuracy_all_clients",
    }
    where = {
        "column": run.column,
        "method": made.label,
        "group": run.group,
        "seed": made.seed,
        "rounds": made.rounds,
    }
    if run.diverged(root):
        return where | {"outcome": "diverged"} | dict.fromkeys(names)
    result = run.result(root)
    return (
        where
        | {"outcome": "done"}
        | {name: percent(result.final[of]) for name, of in names.items()}
    )


def percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


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
