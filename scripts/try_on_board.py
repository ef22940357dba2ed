"""What would other parameters do on a leaderboard's federations? Held-out training images answer.

As in scripts/choose_defaults.py the test set plays no part: the last fifth of each class's training
images is scored in its place, with seeds 10, 11 and 12. Finished runs are kept below OUT; the table
goes to standard output.

    python scripts/try_on_board.py OUT --board cifar-10 fedavg fednh "fednh[scale=30]" [--lr 0.1]
"""

import argparse
from pathlib import Path
from statistics import mean
from typing import Any

import torch.nn.functional as F
from choose_map_default import SEEDS, held_out
from torch import Tensor

import fedmap
from fedmap.errors import DivergenceError
from fedmap.experiment.leaderboard import BOARDS, FIRST
from fedmap.methods import variant
from fedmap.report.table import Table, percent
from fedmap.simulate.result import STEADY

METRICS = {
    f"global_accuracy_last_{STEADY}": f"global, last {STEADY}",
    "personal_accuracy_all_clients": "personal",
    "personal_accuracy_observed_all_clients": "own classes",
}


def cells(
    label: str, federations: dict[int, fedmap.Federation], training: dict[str, Any], out: Path
) -> list[str]:
    """A contender's accuracies over the seeds, how alike the rows of its global classifier end, and
    how many of its runs diverged."""
    method, params = variant(label)
    words, runs = f"lr={training['lr']}-" if "lr" in training else "", []
    for seed, federation in federations.items():
        try:
            run = fedmap.run(
                method, federation, out=out / f"{label}-{words}{seed}", resume=True,
                seed=seed, params=params, **training,
            )  # fmt: skip
        except DivergenceError:
            continue
        runs.append(run)
    columns = [[v for run in runs if (v := run.final[name]) is not None] for name in METRICS]
    found = [percent(column) if column else "-" for column in columns]
    alike = [cosine(model) for run in runs if (model := run.global_model)]
    rows = f"{mean(alike):z.2f}" if alike else "-"
    return [label, *found, rows, str(len(federations) - len(runs))]


def cosine(model: Any) -> float:
    """The mean over all pairs of rows of its classifier."""
    rows: Tensor = F.normalize(model.classifier.weight.detach())
    cosines = rows @ rows.T
    return float(cosines.fill_diagonal_(0).sum() / (cosines.numel() - len(cosines)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--board", choices=list(BOARDS), default=FIRST)
    parser.add_argument("--lr", type=float, help="another learning rate than the board's")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    training = BOARDS[given.board].settings | {"workers": given.workers}
    if given.lr:
        training["lr"] = given.lr
    dataset = fedmap.load(training.pop("data"))
    dataset = held_out(dataset.smaller(training.pop("samples", len(dataset.train_y))))
    clients = training.pop("clients", None)
    federations = {seed: fedmap.partition(dataset, clients, seed=seed) for seed in SEEDS}
    lines = [cells(label, federations, training, given.out) for label in given.methods]
    head = [given.board, *METRICS.values(), "cosine of rows", "runs that diverged"]
    print(Table("", head, lines).markdown(), flush=True)


if __name__ == "__main__":
    main()
