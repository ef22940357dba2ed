"""FedLab's standalone simulation: one process, two threads, its trainers and handlers, with a
loader that reads tensors in memory.

Its optimizer outlives a client, so momentum would leak from one client to the next; a fresh one is
made for each."""

from typing import Any

import cpu_torchvision  # noqa: F401  (before all that imports torchvision)
import torch
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer  # type: ignore[import-not-found]
from fedlab.contrib.algorithm.basic_server import SyncServerHandler  # type: ignore[import-not-found]
from fedlab.contrib.algorithm.scaffold import ScaffoldSerialClientTrainer, ScaffoldServerHandler  # type: ignore[import-not-found]
from fedlab.contrib.dataset.basic_dataset import FedDataset  # type: ignore[import-not-found]
from fedlab.core.standalone import StandalonePipeline  # type: ignore[import-not-found]
from workload import Batches, Data, Turns, Workload, accuracy, given


class Clients(FedDataset):  # type: ignore[misc]
    """Remembers whose loader was asked for last: that client is scored once it is trained."""

    def __init__(self, data: Data) -> None:
        self.data, self.client = data, -1

    def get_dataloader(self, id: int, batch_size: int) -> Batches:
        self.client = id
        return Batches(*self.data.train(id), batch_size)


class Scored:
    """A trainer whose clients start with a fresh optimizer and end with a score on their own test
    samples."""

    workload: Workload

    def train(self, *given: Any) -> Any:
        trainer: Any = self
        trainer.optimizer = self.workload.optimizer(trainer.model)
        trainer.model.train()
        package = super().train(*given)  # type: ignore[misc]
        accuracy(trainer.model, *trainer.dataset.data.test(trainer.dataset.client))
        return package


class FedAvgTrainer(Scored, SGDSerialClientTrainer):  # type: ignore[misc]
    pass


class ScaffoldTrainer(Scored, ScaffoldSerialClientTrainer):  # type: ignore[misc]
    pass


class Pipeline(StandalonePipeline):  # type: ignore[misc]
    def __init__(self, handler: Any, trainer: Any, data: Data, turns: Turns) -> None:
        super().__init__(handler, trainer)
        self.data, self.turns = data, turns

    def evaluate(self) -> None:
        """FedLab calls this at the end of each round."""
        accuracy(self.handler.model, *self.data.global_test)
        self.turns.end()


def main() -> None:
    turns, workload = Turns(), given()
    torch.set_num_threads(2)
    data, net = Data(workload), workload.build()
    scaffold = workload.method == "scaffold"
    trainer = (ScaffoldTrainer if scaffold else FedAvgTrainer)(net, workload.clients)
    trainer.workload = workload
    trainer.setup_dataset(Clients(data))
    trainer.setup_optim(workload.epochs, workload.batch, workload.lr)
    handler = (ScaffoldServerHandler if scaffold else SyncServerHandler)(
        net, workload.rounds, workload.fraction
    )
    if scaffold:
        handler.setup_optim(lr=1.0)
    turns.begin(net, "fedlab")
    Pipeline(handler, trainer, data, turns).main()


if __name__ == "__main__":
    main()
