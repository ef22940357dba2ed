"""The gradients that a method trains with, against finite differences of its loss."""

import torch

from fedmap.client import Client, Training
from fedmap.federation import ClientData
from fedmap.methods import AnyMethod
from fedmap.nets import build
from fedmap.vector import Model, WorkingModels

NET = "tiny"


def client_of(labels: list[int], classes: int = 4) -> Client:
    """A client with one random vector for each of these labels."""
    x = torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(0))
    y = torch.tensor(labels)
    counts = torch.bincount(y, minlength=classes)
    data = ClientData(0, (x, y), (x, y), counts, counts > 0, (), (), False)
    models = WorkingModels(lambda: build(NET, (6,), classes, 0))
    return Client(data, 1, Training(batch=8, lr=0.1), 0, models, 2.0)


def assert_method_gradient(method: AnyMethod, labels: list[int]) -> None:
    """In double, so that a difference quotient has digits: every weight that the loss moves."""
    client = client_of(labels)
    down = method.download(method.start(Model(build(NET, (6,), 4, 0))))
    loss = method.local_loss(client, down, {})
    model = Model(build(NET, (6,), 4, 0).double()).load(down["model"].double())
    x, y = client.train_data[0].double(), client.train_data[1]
    client.gradient(model, loss, x, y)
    found, weights, step = model.grads.clone(), model.weights.detach(), 1e-6
    for place in range(model.features_part.stop):
        kept = float(weights[place])
        values = []
        for moved in (kept + step, kept - step):
            weights[place] = moved
            values.append(float(loss(model, x, y).detach()))
        weights[place] = kept
        quotient = (values[0] - values[1]) / (2 * step)
        assert abs(quotient - float(found[place])) < 1e-6, place
