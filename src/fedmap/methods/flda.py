"""FLDA. Peterson, Kanani and Marathe, Private federated learning with domain adaptation, 2019
(arXiv:1912.06733)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedmap.client import Client
from fedmap.methods.base import Local, Method, MethodParams, Predictor, register
from fedmap.random import generator
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels


class Mixture(nn.Module):
    """a(x) shared(x) + (1 - a(x)) private(x) on the logits, with the gate
    a(x) = sigmoid(u . h(x) + b) on the shared features."""

    def __init__(self, shared: Model, private: Model, gate: Tensor) -> None:
        super().__init__()
        self.shared, self.private = shared.net, private.net
        self.gate = nn.Parameter(gate.clone())  # u, then b

    def forward(self, x: Tensor) -> Tensor:
        h = self.shared.features(x)
        a = torch.sigmoid(h @ self.gate[:-1] + self.gate[-1]).unsqueeze(1)
        mixed: Tensor = a * self.shared.classifier(h) + (1 - a) * self.private(x)
        return mixed


@register
class FLDA(Method[MethodParams]):
    """A shared model and a private one, mixed by a gate that each client learns; only the shared
    model is averaged.

    Shared model, private model and gate are trained together on the cross-entropy of
    a M_G(x) + (1 - a) M_P(x)."""

    def client_state(self, model: Model) -> Values:
        gate = model.vector.new_zeros(model.net.classifier.in_features + 1)
        return {"private": redrawn(model), "gate": gate}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model, private = client.model(down["model"]), client.model(state["private"])
        mixture = Mixture(model, private, state["gate"]).train()

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            return F.cross_entropy(mixture(x), y)

        client.train(model, loss, client.steps, also=[private.weights, mixture.gate])
        mixture.eval()
        up: Values = {"model": model.vector.clone()}
        state = {"private": private.vector.clone(), "gate": mixture.gate.detach()}
        return Local(up, state, up | state)

    def downloaded(self, down: Values, state: Values) -> Values | None:
        return {"model": down["model"]} | state

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        shared, private = models.model(personal["model"]), models.model(personal["private"])
        return Mixture(shared, private, personal["gate"]).eval()


def redrawn(model: Model) -> Tensor:
    """Another draw of the initial weights, the same for all clients: the entries of a freshly drawn
    tensor are exchangeable, so their shuffle is one. It must be another, or private and shared
    model would learn the same."""
    vector, rng = model.vector.clone(), generator(0, "private model")
    for part in model.named(vector[: model.weight_count]).values():
        order = torch.from_numpy(rng.permutation(part.numel())).to(part.device)
        part.copy_(part.flatten()[order].view(part.shape))
    return vector
