"""What one would write with Flower alone: its FedAvg strategy, a training and an evaluation message
in each round. The clients' work is that of fedmap's FedAvg."""

import time
from functools import cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedmap.data import load
from fedmap.federation import ClientData
from fedmap.nets import build

client = ClientApp()
server = ServerApp()
CLASSES = 10


def net_of(config: dict[str, Any]) -> nn.Module:
    return build(str(config["net"]), (1, 32, 32), CLASSES, 0)


@cache
def own_data(name: str) -> ClientData:
    return ClientData.of(load(name))


def reply(message: Message, net: nn.Module, numbers: dict[str, Any]) -> Message:
    content = RecordDict(
        {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(numbers)}
    )
    return Message(content, reply_to=message)


@client.train()
def train(message: Message, context: Context) -> Message:
    net = net_of(context.run_config)
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    data = own_data(str(context.node_config["data"]))
    x, y = data.normalize(data.train[0]), data.train[1]
    optimizer = torch.optim.SGD(net.parameters(), 0.03, momentum=0.9, weight_decay=1e-5)
    for batch in torch.split(torch.randperm(len(y)), 32):
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(net(x[batch]), y[batch]))
        optimizer.step()
    return reply(message, net, {"num-examples": len(y)})


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    net = net_of(context.run_config)
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    data = own_data(str(context.node_config["data"]))
    with torch.no_grad():
        right = net(data.normalize(data.test[0])).argmax(1) == data.test[1]
    numbers: dict[str, Any] = {"accuracy": float(right.float().mean()), "num-examples": len(right)}
    return Message(RecordDict({"metrics": MetricRecord(numbers)}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    began = [time.perf_counter()]

    def ended(round: int, arrays: ArrayRecord) -> MetricRecord:
        now = time.perf_counter()
        print(f"SECONDS {round} {now - began[0]}", flush=True)
        began[0] = now
        return MetricRecord({"round": round})

    sites = int(config["sites"])
    strategy = FedAvg(fraction_train=1.0, fraction_evaluate=1.0, min_available_nodes=sites)
    arrays = ArrayRecord(net_of(config).state_dict())
    strategy.start(grid, arrays, num_rounds=int(config["rounds"]), evaluate_fn=ended)
