"""PFLlib: one process, two threads, its servers and clients, with a loader over tensors in memory
that keeps the last batch.

It would score all clients before each round; here the selected ones are scored once they are
trained. Its SGD gets momentum and weight decay, but Ditto's personal steps have neither. It
averages parameters only, not the statistics of batch norm."""

import sys
from argparse import Namespace
from typing import Any

import torch
from torch import nn
from workload import Batches, Data, Turns, Workload, accuracy, commit_of, given

from nets import CLASSES

CHECKOUT: str = given().options["checkout"]
sys.path.insert(0, f"{CHECKOUT}/system")
try:
    from flcore.servers.serveravg import FedAvg  # type: ignore[import-not-found]
    from flcore.servers.serverditto import Ditto  # type: ignore[import-not-found]
    from flcore.servers.serverscaffold import SCAFFOLD  # type: ignore[import-not-found]
except ImportError as why:
    raise SystemExit(
        f"{CHECKOUT} should be the folder of a recent TsingZ0/PFLlib, with its folder system: {why}"
    ) from None


class Scored:
    """A client that reads tensors in memory, and that is scored on its own test samples once it is
    trained."""

    data: Data

    def load_train_data(self) -> Batches:
        client: Any = self
        return Batches(*self.data.train(client.id), client.batch_size)

    def train(self) -> None:
        client: Any = self
        if self.data.workload.method != "scaffold":  # whose optimizer is PFLlib's own
            client.optimizer = self.data.workload.optimizer(client.model)
        super().train()  # type: ignore[misc]
        accuracy(getattr(client, "model_per", client.model), *self.data.test(client.id))


class Stepped:
    """A server with the workload's clients, whose rounds are the harness's turns."""

    def __init__(self, args: Namespace, data: Data, turns: Turns) -> None:
        self.data, self.turns = data, turns
        super().__init__(args, 0)  # type: ignore[call-arg]

    def set_clients(self, client: type) -> None:
        """PFLlib would read every client's files to count the samples."""
        server: Any = self
        scored, workload = type("Client", (Scored, client), {"data": self.data}), self.data.workload
        about = {
            "train_samples": workload.train,
            "test_samples": workload.test,
            "train_slow": False,
            "send_slow": False,
        }
        server.clients = [scored(server.args, id=k, **about) for k in range(workload.clients)]

    def evaluate(self) -> None:
        pass

    def evaluate_personalized(self) -> None:
        pass

    def aggregate_parameters(self) -> None:
        """PFLlib calls this at the end of each round."""
        server: Any = self
        super().aggregate_parameters()  # type: ignore[misc]
        accuracy(server.global_model, *self.data.global_test)
        self.turns.end()


class SteppedFedAvg(Stepped, FedAvg):  # type: ignore[misc]
    pass


class SteppedScaffold(Stepped, SCAFFOLD):  # type: ignore[misc]
    pass


class SteppedDitto(Stepped, Ditto):  # type: ignore[misc]
    pass


SERVERS: dict[str, Any] = {
    "fedavg": SteppedFedAvg,
    "scaffold": SteppedScaffold,
    "ditto": SteppedDitto,
}


def settings(workload: Workload, net: nn.Module) -> Namespace:
    """What PFLlib's main.py makes of its command line."""
    return Namespace(
        model=net,
        num_classes=CLASSES,
        num_clients=workload.clients,
        join_ratio=workload.fraction,
        global_rounds=workload.rounds,
        local_epochs=workload.epochs,
        batch_size=workload.batch,
        local_learning_rate=workload.lr,
        server_learning_rate=1.0,  # Scaffold's
        plocal_epochs=workload.epochs,  # Ditto's
        mu=0.1,
        device="cpu",
        # From here on its defaults, which leave out what the comparison does not ask for.
        algorithm=workload.method,
        dataset="noise",
        goal="test",
        save_folder_name="items",
        learning_rate_decay=False,
        learning_rate_decay_gamma=0.99,
        random_join_ratio=False,
        client_drop_rate=0.0,
        train_slow_rate=0.0,
        send_slow_rate=0.0,
        time_select=False,
        time_threthold=10_000,
        eval_gap=1,
        auto_break=False,
        top_cnt=100,
        dlg_eval=False,
        dlg_gap=100,
        batch_num_per_client=2,
        num_new_clients=0,
        fine_tuning_epoch_new=0,
        few_shot=0,
    )


def main() -> None:
    turns, workload = Turns(), given()
    torch.set_num_threads(2)
    net = workload.build()
    server = SERVERS[workload.method](settings(workload, net), Data(workload), turns)
    turns.begin(net, PFLlib=commit_of(CHECKOUT))
    server.train()


if __name__ == "__main__":
    main()
