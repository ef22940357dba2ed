"""pfl-research: in one process with two threads, or, started by torchrun, in two processes with one
thread each.

Its datasets keep their order, so pfl does not shuffle; it averages parameters only, not the
statistics of batch norm."""

from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams  # type: ignore[import-not-found]
from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
from pfl.callback.central_evaluation import CentralEvaluationCallback  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.pytorch import PyTorchTensorDataset  # type: ignore[import-not-found]
from pfl.data.sampling import get_user_sampler  # type: ignore[import-not-found]
from pfl.data.user_state import InMemoryUserStateStorage  # type: ignore[import-not-found]
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.internal.ops.pytorch_ops import distributed  # type: ignore[import-not-found]
from pfl.metrics import Metrics, Weighted  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from torch import Tensor, nn
from workload import EVALUATION_BATCH, SCORED, STEPS, Data, Turns, Workload, add, given

EVALUATION = NNEvalHyperParams(local_batch_size=EVALUATION_BATCH)


class Trained(nn.Module):
    """The net with the two functions that pfl asks of it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        self.net.train()
        return F.cross_entropy(self.net(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        self.net.eval()
        return {"accuracy": Weighted(int((self.net(x).argmax(1) == y).sum()), len(y))}


class Scored:
    """An algorithm that scores every trained model on the client's own test samples; pfl itself
    would take the training samples."""

    tests: list[Any]

    def train_one_user(self, initial: Any, model: Any, user: Any, context: Any) -> tuple[Any, Any]:
        statistics, metrics = super().train_one_user(initial, model, user, context)  # type: ignore[misc]
        return statistics, metrics | model.evaluate(
            self.tests[int(user.user_id)], eval_params=EVALUATION
        )


class ScoredFedAvg(Scored, FederatedAveraging):  # type: ignore[misc]
    pass


class ScoredScaffold(Scored, SCAFFOLD):  # type: ignore[misc]
    pass


class Stepped(TrainingProcessCallback):  # type: ignore[misc]
    """The last callback of a round. The first process talks to the harness, the other one waits for
    it."""

    def __init__(self, net: nn.Module) -> None:
        self.net, self.turns = net, Turns() if distributed.global_rank == 0 else None

    def on_train_begin(self, *, model: Any) -> Any:
        if self.turns:
            self.turns.begin(self.net, "pfl")
        self.together()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Any, model: Any, *, central_iteration: int
    ) -> tuple[bool, Any]:
        if distributed.world_size > 1:
            mine = torch.tensor([STEPS.value, SCORED.value], dtype=torch.float32)
            [all_work] = distributed.all_reduce([mine.clone()])
            add(*(int(more) for more in all_work - mine))
        if self.turns:
            self.turns.end()
        else:
            add(-STEPS.value, -SCORED.value)
        self.together()
        return False, Metrics()

    def together(self) -> None:
        if distributed.world_size > 1:
            torch.distributed.barrier()


def algorithm(workload: Workload) -> tuple[Any, Any]:
    # With this frequency pfl's own evaluation of clients, twice and on training samples, happens in
    # the very first round only.
    rates = {
        "central_num_iterations": workload.rounds + 1,
        "evaluation_frequency": workload.rounds + 1,
        "train_cohort_size": workload.clients_a_round,
        "val_cohort_size": None,
    }
    if workload.method != "scaffold":
        return ScoredFedAvg(), NNAlgorithmParams(**rates)
    own = {
        "population": workload.clients,
        "use_gradient_as_control_variate": False,
        "user_state_storage": InMemoryUserStateStorage(),
    }
    return ScoredScaffold(), SCAFFOLDParams(**rates, **own)


def main() -> None:
    workload = given()
    torch.set_num_threads(2 // distributed.world_size)
    data, net = Data(workload), Trained(workload.build())
    stepped = Stepped(net)
    users = {
        str(k): PyTorchTensorDataset(data.train(k), user_id=str(k)) for k in range(workload.clients)
    }
    federated = FederatedDataset(users.__getitem__, get_user_sampler("minimize_reuse", list(users)))
    model = PyTorchModel(
        net,
        lambda parameters, lr: workload.optimizer(net),
        torch.optim.SGD(net.parameters(), lr=1.0),
    )
    averaging, params = algorithm(workload)
    averaging.tests = [PyTorchTensorDataset(data.test(k)) for k in range(workload.clients)]
    averaging.run(
        params,
        SimulatedBackend(federated, federated),
        model,
        NNTrainHyperParams(
            local_batch_size=workload.batch,
            local_num_epochs=workload.epochs,
            local_learning_rate=workload.lr,
        ),
        EVALUATION,
        [CentralEvaluationCallback(PyTorchTensorDataset(data.global_test), EVALUATION), stepped],
    )


if __name__ == "__main__":
    main()
