"""The code of MAP's authors: one process, two threads, its FedAvg and its MAP (FedAP), with loaders
that read tensors in memory.

It scores clients before and after training; only the trained model's score is kept. A second stage
comes on top of the steps that its MAP is told, so it is told fewer; the stages then have 35 and 5
of 40 steps. Gradients are clipped as in its settings."""

import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from workload import Batches, Data, Pair, Turns, Workload, accuracy, commit_of, given

from nets import CLASSES

CHECKOUT = given().options["checkout"]
sys.path.insert(0, CHECKOUT)
try:
    from algorithms.fedap import FedAP  # type: ignore[import-not-found]
    from algorithms.fedavg import FedAvg  # type: ignore[import-not-found]
except ImportError as missing:
    raise SystemExit(
        f"{CHECKOUT} should be the folder of the repository lxcnju/MAP: {missing}"
    ) from missing


class Split(nn.Module):
    """The net as the authors' nets are: it answers with features and logits, and names its
    classifier."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.encoder, self.classifier = net[:-1], net[-1]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x)
        return features, self.classifier(features)


class Samples(TensorDataset):
    @property
    def ys(self) -> Any:
        """MAP counts a client's classes in this array."""
        return self.tensors[1].numpy()


def score(model: Any, test: Pair) -> None:
    accuracy(nn.Sequential(model.encoder, model.classifier), *test)


class Stepped:
    """Scores the global model at the end of a round. Clients are scored elsewhere, once they are
    trained."""

    turns: Turns
    glo_test_loader: Pair

    def test(self, model: Any, loader: Pair) -> tuple[float, float]:
        if loader is self.glo_test_loader:
            score(model, loader)
            self.turns.end()
        return 0.0, 0.0


class ScoredFedAvg(Stepped, FedAvg):  # type: ignore[misc]
    def update_local(self, **given: Any) -> Any:
        trained, *more = super().update_local(**given)
        score(trained, given["test_loader"])
        return trained, *more


class ScoredMAP(Stepped, FedAP):  # type: ignore[misc]
    def update_local_hpm(self, **given: Any) -> Any:
        hpm, *more = super().update_local_hpm(**given)
        score(hpm, given["test_loader"])
        return hpm, *more

    def local_test(self, model: Any, hpm: Any, loader: Pair) -> tuple[float, float]:
        hpm.eval()  # it teaches in this mode
        return 0.0, 0.0


def local_steps(workload: Workload) -> int:
    """MAP's second stage adds a tenth of this number, but at least five."""
    wanted = workload.steps // workload.clients_a_round
    return (
        wanted
        if workload.method != "map"
        else max(n for n in range(wanted) if n + max(n // 10, 5) <= wanted)
    )


def settings(workload: Workload) -> SimpleNamespace:
    return SimpleNamespace(
        max_round=workload.rounds,
        test_round=1,
        c_ratio=workload.fraction,
        n_classes=CLASSES,
        batch_size=workload.batch,
        local_steps=local_steps(workload),
        optimizer="SGD",
        lr=workload.lr,
        momentum=workload.momentum,
        weight_decay=workload.weight_decay,
        max_grad_norm=100.0,
        cuda=False,
        # MAP's: the second of the authors' three groups, with which fedmap runs too.
        reg_way="KD",
        reg_lamb=0.01,
        alpha=0.9,
        min_samples=1,
    )


def main() -> None:
    turns, workload = Turns(), given()
    torch.set_num_threads(2)
    data, net = Data(workload), Split(workload.build())
    everyone = range(workload.clients)
    sets = {
        client: (Samples(*data.train(client)), Samples(*data.test(client))) for client in everyone
    }
    algorithm = (ScoredMAP if workload.method == "map" else ScoredFedAvg)(
        sets, Samples(*data.global_test), net, settings(workload)
    )
    algorithm.train_loaders = {
        client: Batches(*data.train(client), workload.batch) for client in everyone
    }
    algorithm.test_loaders = {client: data.test(client) for client in everyone}
    algorithm.glo_test_loader, algorithm.turns = data.global_test, turns
    turns.begin(net, **{"lxcnju/MAP": commit_of(CHECKOUT)})
    algorithm.train()


if __name__ == "__main__":
    main()
