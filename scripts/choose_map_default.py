"""Which reading of MAP should be the default? Schedules and alphas over seeds and both nets of
Fashion-MNIST.

The test set plays no part: the last fifth of each class's training images is held out and scored
instead, and the seeds are not those of the reported tables. Finished runs are kept below OUT and
not run again; the table goes to standard output.

    python scripts/choose_map_default.py OUT [--rounds 60] [--nets mlp lenet] [--workers 2]
"""

import argparse
import dataclasses
from pathlib import Path

import torch

import fedmap
from fedmap.data import Dataset
from fedmap.report.table import Table, percent
from fedmap.simulate.result import STEADY

CONTENDERS: dict[str, tuple[str, dict[str, object]]] = {"fedavg": ("fedavg", {})} | {
    f"map, {preset}, alpha {alpha}": ("map", {"preset": preset, "alpha": alpha})
    for preset in ("printed", "released")
    for alpha in (0.9, 0.5, 0.1)
}
SEEDS = (10, 11, 12)
METRICS = {
    f"global_accuracy_last_{STEADY}": f"global, last {STEADY}",
    f"personal_accuracy_last_{STEADY}": f"personal, last {STEADY}",
    "personal_accuracy_all_clients": "personal, all clients",
}


def held_out(dataset: Dataset) -> Dataset:
    """The training images alone: the first four fifths of each class to train on, the rest in the
    place of the test set."""
    rank = torch.empty_like(dataset.train_y)
    for c in range(len(dataset.classes)):
        (here,) = torch.nonzero(dataset.train_y == c, as_tuple=True)
        rank[here] = torch.arange(len(here))
    last = rank >= 0.8 * len(dataset.train_y) / len(dataset.classes)
    x, y = dataset.train_x, dataset.train_y
    return dataclasses.replace(
        dataset, train_x=x[~last], train_y=y[~last], test_x=x[last], test_y=y[last]
    )


def cells(
    name: str,
    federations: dict[int, fedmap.Federation],
    out: Path,
    net: str,
    rounds: int,
    workers: int,
) -> list[str]:
    """A contender's numbers: mean and standard deviation over the seeds."""
    method, params = CONTENDERS[name]
    short = name.replace(", ", "-").replace(" ", "")
    runs = [
        fedmap.run(
            method,
            federation,
            out=out / f"{net}-{rounds}-{seed}-{short}",
            resume=True,
            net=net,
            rounds=rounds,
            seed=seed,
            params=params,
            workers=workers,
        )
        for seed, federation in federations.items()
    ]
    return [percent([run.final[metric] for run in runs]) for metric in METRICS]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--nets", nargs="+", default=["mlp", "lenet"])
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    dataset = held_out(fedmap.load("fashion-mini"))
    federations = {seed: fedmap.partition(dataset, 20, seed=seed) for seed in SEEDS}
    for net in given.nets:
        head = [f"{net}, {given.rounds} rounds", *METRICS.values()]
        lines = [
            [name, *cells(name, federations, given.out, net, given.rounds, given.workers)]
            for name in CONTENDERS
        ]
        print(Table("", head, lines).markdown(), flush=True)


if __name__ == "__main__":
    main()
