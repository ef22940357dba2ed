"""Flower's simulation runtime on Ray: two actors with one thread each; the server scores the global
model with two."""

import os
import sys
from typing import Any

# actors inherit these
os.environ |= {"WORKLOAD": sys.argv[1], "FLWR_TELEMETRY_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}

import flower_client
import torch
from flwr.app import ArrayRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import Data, Turns, accuracy, add, given

TURNS, WORKLOAD = Turns(), given()
server = ServerApp()


def tally(replies: list[RecordDict], weighted_by: str) -> MetricRecord:
    """The clients' mean accuracy; their counted work goes to the round's."""
    metrics: list[Any] = [reply.metric_records["metrics"] for reply in replies]
    add(sum(m["steps"] for m in metrics), sum(m["scored"] for m in metrics))
    return MetricRecord({"accuracy": sum(m["accuracy"] for m in metrics) / len(metrics)})


@server.main()
def serve(grid: Grid, context: Context) -> None:
    torch.set_num_threads(2)
    net, test = WORKLOAD.build(), Data(WORKLOAD).global_test

    def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord:
        """Flower calls this once before the first round, then at the end of each."""
        net.load_state_dict(arrays.to_torch_state_dict())
        score = accuracy(net, *test)
        if round:
            TURNS.end()
        else:
            TURNS.begin(net, "flwr", "ray")
        return MetricRecord({"accuracy": score})

    strategy = FedAvg(
        fraction_train=WORKLOAD.fraction,
        fraction_evaluate=0.0,
        min_available_nodes=WORKLOAD.clients,
        min_train_nodes=WORKLOAD.clients_a_round,
        train_metrics_aggr_fn=tally,
    )
    strategy.start(
        grid, ArrayRecord(net.state_dict()), num_rounds=WORKLOAD.rounds, evaluate_fn=evaluate
    )


if __name__ == "__main__":
    two, one = {"num_cpus": 2}, {"num_cpus": 1, "num_gpus": 0.0}
    resources: Any = {"init_args": two, "client_resources": one}
    run_simulation(server, flower_client.app, WORKLOAD.clients, backend_config=resources)
