"""fluke: one process, two threads, its own loader over tensors in memory, accuracy as the only
metric."""

from typing import Any

import cpu_torchvision  # noqa: F401  (before all that imports torchvision)
import torch
from fluke import DDict, FlukeENV  # type: ignore[import-not-found]
from fluke.algorithms.ditto import Ditto  # type: ignore[import-not-found]
from fluke.algorithms.fedavg import FedAVG  # type: ignore[import-not-found]
from fluke.algorithms.scaffold import SCAFFOLD  # type: ignore[import-not-found]
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader  # type: ignore[import-not-found]
from fluke.evaluation import ClassificationEval  # type: ignore[import-not-found]
from fluke.utils import FederationObserver  # type: ignore[import-not-found]
from torchmetrics import Accuracy  # type: ignore[import-not-found]
from workload import EVALUATION_BATCH, Data, Turns, Workload, given

from nets import CLASSES

ALGORITHMS = {"fedavg": FedAVG, "scaffold": SCAFFOLD, "ditto": Ditto}


class Stepped(FederationObserver):  # type: ignore[misc]
    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def end_round(self, round: int) -> None:
        self.turns.end()


def splitter(workload: Workload) -> Any:
    data = Data(workload)

    def loader(x: torch.Tensor, y: torch.Tensor, size: int, shuffle: bool) -> Any:
        return FastDataLoader(
            x, y, num_labels=CLASSES, batch_size=size, shuffle=shuffle, skip_singleton=False
        )

    everyone = range(workload.clients)
    train = [loader(*data.train(client), workload.batch, True) for client in everyone]
    test = [loader(*data.test(client), EVALUATION_BATCH, False) for client in everyone]
    return DataSplitter(
        DummyDataContainer(train, test, loader(*data.global_test, EVALUATION_BATCH, False), CLASSES)
    )


def client(workload: Workload) -> dict[str, Any]:
    optimizer: dict[str, Any] = {"name": "SGD", "lr": workload.lr}
    if workload.method != "scaffold":
        optimizer |= {"momentum": workload.momentum, "weight_decay": workload.weight_decay}
    # else a client's momentum would live on until its next round
    own: dict[str, Any] = {"persistency": False}
    if workload.method == "scaffold":
        own = {}
    elif workload.method == "ditto":
        own = {"model": workload.build(), "tau": workload.epochs, "lam": 0.1}
    return {
        "batch_size": workload.batch,
        "local_epochs": workload.epochs,
        "loss": "CrossEntropyLoss",
        "optimizer": optimizer,
        "scheduler": {"name": "StepLR", "step_size": 1, "gamma": 1},
        **own,
    }


def main() -> None:
    turns, workload = Turns(), given()
    torch.set_num_threads(2)
    environment = FlukeENV()
    environment.set_eval_cfg(pre_fit=False, post_fit=True, locals=False, server=True)
    environment.set_evaluator(
        ClassificationEval(1, CLASSES, accuracy=Accuracy(task="multiclass", num_classes=CLASSES))
    )
    # no thread that draws while others have their turn
    environment.get_live_renderer().auto_refresh = False
    net = workload.build()
    parts = DDict(client=DDict(client(workload)), server=DDict(weighted=False), model=net)
    algorithm = ALGORITHMS[workload.method](workload.clients, splitter(workload), parts)
    algorithm.set_callbacks(Stepped(turns))
    turns.begin(net, "fluke-fl")
    algorithm.run(workload.rounds, workload.fraction)


if __name__ == "__main__":
    main()
