"""Why are FedLoGe's personal models poor on CIFAR-10? Its bodies, asked with each of their heads:
the table in docs/methods/fedloge.md.

Reads the runs that scripts/try_on_board.py left below OUT, on held-out training images; the answers
are among the client's own classes.

    python scripts/try_on_board.py OUT --board cifar-10 fedavg fedloge
    python scripts/try_heads.py OUT
"""

import argparse
from pathlib import Path
from statistics import mean

import torch
from choose_map_default import SEEDS, held_out
from torch import Tensor

import fedmap
from fedmap.experiment.leaderboard import BOARDS
from fedmap.methods.fedloge import FedLoGe
from fedmap.nets import build
from fedmap.report.table import Table, percent
from fedmap.simulate.result import Result
from fedmap.values import load
from fedmap.vector import Model

HEADS = {
    "told": "generic times private length, as the method says",
    "generic": "generic",
    "private": "private",
    "fixed": "fixed",
}


def asked(folder: Path, federation: fedmap.Federation, seed: int) -> tuple[dict[str, float], float]:
    """Of one run: the mean accuracy over all clients with each head, and the features' length."""
    dataset, result = federation.dataset, Result.read(folder)
    net = build("tfcnn", dataset.shape, len(dataset.classes), seed)
    fixed, found = FedLoGe().fixed(Model(net)), {name: list[float]() for name in HEADS}
    lengths = []
    for number, file in enumerate(result.personal_files):
        entries = load(file)
        kept = {name: value for name, value in entries.items() if not name.startswith("+")}
        net.load_state_dict(kept)
        generic, private = kept["classifier.weight"], entries["+head"]
        heads: dict[str, Tensor] = {
            "told": generic * (1 + private.norm(dim=1, keepdim=True)),
            "generic": generic,
            "private": private,
            "fixed": fixed,
        }
        x, y = federation.client(number).test
        with torch.inference_mode():
            h = net.features(dataset.normalize(x))
        lengths.append(float(h.norm(dim=1).mean()))
        for name, rows in heads.items():
            logits = (h @ rows.T).masked_fill(~entries["+own"].bool(), -torch.inf)
            found[name].append(float((logits.argmax(1) == y).float().mean()))
    return {name: mean(shares) for name, shares in found.items()}, mean(lengths)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    settings = BOARDS["cifar-10"].settings
    dataset = held_out(fedmap.load(settings["data"]).smaller(settings["samples"]))
    runs = [
        asked(
            given.out / f"fedloge-{seed}",
            fedmap.partition(dataset, settings["clients"], seed=seed),
            seed,
        )
        for seed in SEEDS
    ]
    lines = [[HEADS[name], percent([shares[name] for shares, _ in runs])] for name in HEADS]
    print(Table("", ["head", "personal, among own classes"], lines).markdown())
    print(f"mean length of a feature: {mean(length for _, length in runs):.0f}")


if __name__ == "__main__":
    main()
