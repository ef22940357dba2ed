"""FL-bench in its serial mode: one process, two threads, its servers and clients, with tensors in
memory and no progress bar.

It would score clients before their training too. Its Scaffold counts steps where its other methods
count epochs."""

import json
import math
import pickle
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cpu_torchvision  # noqa: F401  (before all that imports torchvision)
import torch
from torch import nn
from workload import Batches, Data, Turns, Workload, accuracy, commit_of, given

CHECKOUT: str = given().options["checkout"]
sys.path.insert(0, CHECKOUT)
try:
    import src.server.fedavg as fl_bench  # type: ignore[import-not-found]
    from hydra.conf import HydraConf, RuntimeConf  # type: ignore[import-not-found]
    from hydra.core.hydra_config import HydraConfig  # type: ignore[import-not-found]
    from omegaconf import DictConfig  # type: ignore[import-not-found]
    from src.server.ditto import DittoServer  # type: ignore[import-not-found]
    from src.server.scaffold import SCAFFOLDServer  # type: ignore[import-not-found]
    from src.utils.functional import parse_args  # type: ignore[import-not-found]
    from src.utils.models import DecoupledModel  # type: ignore[import-not-found]
except ImportError as why:
    raise SystemExit(
        f"{CHECKOUT} should be the folder of a recent KarhouTam/FL-bench, with its folders src and "
        f"data: {why}"
    ) from None

NAME = "noise"  # of the dataset


class Samples:
    """All clients' samples. FL-bench asks a dataset to change its transforms; here are none."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def train(self) -> None:
        pass


class Net(DecoupledModel):  # type: ignore[misc]
    """The net in the two parts that FL-bench asks for."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.base, self.classifier = net[:-1], net[-1]


class Scored:
    """A client that reads tensors in memory, and that is scored on its own test samples once it is
    trained."""

    def load_data_indices(self) -> None:
        super().load_data_indices()  # type: ignore[misc]
        client: Any = self
        data: Data = client.dataset.data
        client.trainloader = Batches(*data.train(client.client_id), data.workload.batch)

    def train_with_eval(self) -> None:
        client: Any = self
        net = getattr(client, "pers_model", client.model)
        net.train()  # FL-bench leaves Ditto's personal model as its last evaluation did
        client.fit()
        accuracy(net, *client.dataset.data.test(client.client_id))


class Stepped:
    """A server with the workload's net and data, whose rounds are the harness's turns."""

    def __init__(self, args: Any, data: Data, turns: Turns) -> None:
        self.data, self.turns = data, turns
        super().__init__(args)  # type: ignore[call-arg]
        self.train_progress_bar = range(data.workload.rounds)

    def init_model(self) -> None:
        super().init_model(Net(self.data.workload.build()))  # type: ignore[misc]

    def get_dataset(self) -> Samples:
        return Samples(self.data)

    def test_global_model(self) -> None:
        server: Any = self
        server.model.load_state_dict(server.public_model_params, strict=False)
        accuracy(server.model, *self.data.global_test)

    def display_metrics(self) -> None:
        """FL-bench calls this at the end of each round."""
        self.turns.end()


class FedAvgClient(Scored, fl_bench.FedAvgServer.client_cls):  # type: ignore[misc]
    pass


class FedAvg(Stepped, fl_bench.FedAvgServer):  # type: ignore[misc]
    client_cls = FedAvgClient


class ScaffoldClient(Scored, SCAFFOLDServer.client_cls):  # type: ignore[misc]
    pass


class Scaffold(Stepped, SCAFFOLDServer):  # type: ignore[misc]
    client_cls = ScaffoldClient


class DittoClient(Scored, DittoServer.client_cls):  # type: ignore[misc]
    pass


class Ditto(Stepped, DittoServer):  # type: ignore[misc]
    client_cls = DittoClient


SERVERS: dict[str, Any] = {"fedavg": FedAvg, "scaffold": Scaffold, "ditto": Ditto}


def settings(workload: Workload) -> Any:
    """What differs from FL-bench's defaults."""
    optimizer: dict[str, Any] = {"name": "sgd", "lr": workload.lr}
    epochs = workload.epochs
    if workload.method == "scaffold":
        epochs *= math.ceil(workload.train / workload.batch)
    else:
        optimizer |= {"momentum": workload.momentum, "weight_decay": workload.weight_decay}
    common = {
        "join_ratio": workload.fraction,
        "global_epoch": workload.rounds,
        "local_epoch": epochs,
        "batch_size": workload.batch,
        "test": {"client": {"interval": -1, "test": False}, "server": {"interval": 1}},
        "verbose_gap": workload.rounds + 1,
        "use_cuda": False,
        "save_log": False,
        "save_learning_curve_plot": False,
        "save_metrics": False,
    }
    ditto = {"pers_epoch": workload.epochs, "lamda": 0.1}
    given = DictConfig(
        {"dataset": {"name": NAME}, "optimizer": optimizer, "common": common, "ditto": ditto}
    )
    return parse_args(
        given, workload.method, getattr(SERVERS[workload.method], "get_hyperparams", None)
    )


def write_partition(workload: Workload, folder: Path) -> None:
    """Who has which samples, in the files that FL-bench's preparation of a dataset leaves."""
    everyone, each = list(range(workload.clients)), workload.train + workload.test
    firsts = [client * each for client in everyone]
    parts = [
        {
            "train": [*range(k, k + workload.train)],
            "val": [],
            "test": [*range(k + workload.train, k + each)],
        }
        for k in firsts
    ]
    separation = {"train": everyone, "val": [], "test": everyone, "total": workload.clients}
    folder.mkdir(parents=True)
    (folder / "args.json").write_text(json.dumps({}))
    (folder / "partition.pkl").write_bytes(
        pickle.dumps({"separation": separation, "data_indices": parts})
    )


def main() -> None:
    turns, workload = Turns(), given()
    torch.set_num_threads(2)
    with TemporaryDirectory() as folder:
        fl_bench.FLBENCH_ROOT = Path(folder)
        HydraConfig.instance().set_config(
            DictConfig({"hydra": HydraConf(runtime=RuntimeConf(output_dir=folder))})
        )
        write_partition(workload, fl_bench.FLBENCH_ROOT / "data" / NAME)
        server = SERVERS[workload.method](settings(workload), Data(workload), turns)
    # FL-bench makes parameters of batch norm's statistics, which are averaged but not trained.
    trained = nn.ParameterList(
        parameter for parameter in server.model.parameters() if parameter.requires_grad
    )
    turns.begin(trained, **{"FL-bench": commit_of(CHECKOUT)})
    server.train()


if __name__ == "__main__":
    main()
