"""Why does a fixed simplex as classifier do well or poorly after a ReLU? The table in
docs/methods/fedgela.md.

As in scripts/choose_defaults.py the test set plays no part: held-out training images of
fashion-mini, seeds 10, 11 and 12, 20 clients, LeNet. Finished runs are kept below OUT; the table
goes to standard output.

    python scripts/try_simplex.py OUT [--rounds 40] [--workers 2]
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from choose_map_default import SEEDS, held_out
from torch import nn

import fedmap
from fedmap.errors import DivergenceError
from fedmap.methods.fedgela import FedGELA
from fedmap.methods.parts.body import simplex, with_classifier
from fedmap.nets import Net
from fedmap.nets.lenet import LeNet
from fedmap.report.table import Table, percent
from fedmap.simulate.result import STEADY
from fedmap.values import Values
from fedmap.vector import Model


class Positive(FedGELA):
    """FedGELA whose simplex is made of numbers from 0 to 1, as its authors' code draws them."""

    def start(self, model: Model) -> Values:
        rows = model.net.classifier.weight
        drawn = torch.rand(rows.shape, generator=torch.Generator().manual_seed(0)).to(rows)
        return {"model": with_classifier(model, self.params.scale * simplex(drawn))}


class Projected(Net):
    """LeNet with a linear layer between its features and the classifier."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        dim = LeNet.dim
        features = nn.Sequential(LeNet(shape, classes).features, nn.Linear(dim, dim))
        super().__init__(features, dim, classes)


class Signed(LeNet):
    """LeNet without the ReLU before its classifier."""

    relu = False


ETF = {"loss": "etf"}
CONTENDERS: dict[str, tuple[Any, dict[str, Any], Any]] = {
    "FedAvg": ("fedavg", {}, "lenet"),
    "gela": ("fedgela", {}, "lenet"),
    "gela, drawn from 0 to 1": (Positive, {}, "lenet"),
    "gela, a linear layer before the simplex": ("fedgela", {}, Projected),
    "gela, no ReLU before the simplex": ("fedgela", {}, Signed),
    "etf": ("fedgela", ETF, "lenet"),
    "etf, drawn from 0 to 1": (Positive, ETF, "lenet"),
    "etf, a linear layer before the simplex": ("fedgela", ETF, Projected),
    "etf, no ReLU before the simplex": ("fedgela", ETF, Signed),
}


def cells(
    name: str, federations: dict[int, fedmap.Federation], out: Path, rounds: int, workers: int
) -> list[str]:
    """A contender's accuracies over the seeds, and how many of its runs diverged."""
    method, params, net = CONTENDERS[name]
    finals, short = [], name.replace(", ", "-").replace(" ", "-")
    for seed, federation in federations.items():
        try:
            run = fedmap.run(
                method, federation, out=out / f"{short}-{rounds}-{seed}", resume=True,
                net=net, rounds=rounds, seed=seed, params=params, workers=workers,
            )  # fmt: skip
        except DivergenceError:
            continue
        finals.append(run.final)
    names = (f"global_accuracy_last_{STEADY}", "personal_accuracy_all_clients")
    found = [percent([final[name] for final in finals]) if finals else "-" for name in names]
    return [name, *found, str(len(federations) - len(finals))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    dataset = held_out(fedmap.load("fashion-mini"))
    federations = {seed: fedmap.partition(dataset, 20, seed=seed) for seed in SEEDS}
    lines = [cells(name, federations, given.out, given.rounds, given.workers)
             for name in CONTENDERS]  # fmt: skip
    head = ["simplex", f"global, last {STEADY}", "personal, all clients", "runs that diverged"]
    print(Table("", head, lines).markdown(), flush=True)


if __name__ == "__main__":
    main()
