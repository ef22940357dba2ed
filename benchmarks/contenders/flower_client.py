"""Flower's client: a module of its own, so that Ray's actors import it once instead of unpickling
it for every call."""

import os
from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from workload import SCORED, STEPS, Batches, Data, Workload, accuracy, add, train

app = ClientApp()


@cache
def kept() -> tuple[Workload, Data, nn.Module]:
    """Workload, data and net of this actor, made once and used for all of its clients."""
    torch.set_num_threads(1)
    workload = Workload.read(os.environ["WORKLOAD"])
    return workload, Data(workload), workload.build()


@app.train()
def train_client(message: Message, context: Context) -> Message:
    workload, data, net = kept()
    client = int(context.node_config["partition-id"])
    add(-STEPS.value, -SCORED.value)
    net.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    train(
        net, workload.optimizer(net), Batches(*data.train(client), workload.batch), workload.epochs
    )
    numbers = {"num-examples": workload.train, "accuracy": accuracy(net, *data.test(client))}
    work = {"steps": STEPS.value, "scored": SCORED.value}
    content = RecordDict(
        {"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(numbers | work)}
    )
    return Message(content=content, reply_to=message)
