"""One round of MAP on each of the paper's datasets with each of the networks that it is trained
with; needs the official files in FEDMAP_DATA."""

import dataclasses
import math
import os

import numpy as np
import pytest
import torch

import fedmap

COLUMNS = {
    "fashion-mnist": ["mlp", "lenet"],
    "mnist": ["lenet-2d", "lenet-2d-relu"],
    "cifar-10": ["tfcnn", "vgg8", "vgg11-bn"],
    "cifar-100": ["vgg8-bn", "vgg11", "vgg16-bn"],
    "cinic-10": ["resnet20", "resnet56"],
    "femnist": ["femnist"],
}


@pytest.mark.skipif(
    not os.environ.get("FEDMAP_DATA"),
    reason="set FEDMAP_DATA to a folder with the official files to run this test",
)
@pytest.mark.parametrize(
    ("data", "net"), [(data, net) for data, nets in COLUMNS.items() for net in nets]
)
def test_a_round_of_map_runs_on(data: str, net: str) -> None:
    dataset = fedmap.load(data)
    whole = fedmap.partition(dataset)
    # two clients of it, and a hundred test samples
    mine = [torch.cat([whole.train[k], whole.test[k]]) for k in (0, 1)]
    index = torch.cat(mine)
    part = dataclasses.replace(
        dataset,
        train_x=dataset.train_x[index],
        train_y=dataset.train_y[index],
        test_x=whole.test_x[:100],
        test_y=whole.test_y[:100],
        owner=None,
        client_names=(),
    )
    two = fedmap.Federation(part, np.repeat([0, 1], [len(samples) for samples in mine]))
    result = fedmap.run("map", two, net=net, rounds=1, fraction=0.5, epochs=0.1, batch=8)
    (record,) = result.rounds
    assert math.isfinite(record["train_loss"])  # accuracies may well be 0 after so few steps
    assert result.global_accuracy is not None
    assert 0 <= result.global_accuracy <= 1
    assert len(result.final["personal_accuracy_per_client"]) == 2
