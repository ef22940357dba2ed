"""FedLESAM. Fan et al., Locally estimated global perturbations are better than local perturbations
for federated sharpness-aware minimization, ICML 2024. With `direction` local: FedSAM. Qu et al.,
Generalized federated learning via sharpness aware minimization, ICML 2022."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from fedmap.client import Client
from fedmap.losses import Loss, cross_entropy
from fedmap.methods.base import Local, Method, MethodParams, register
from fedmap.values import Values, number
from fedmap.vector import Model


class FedLESAMParams(MethodParams):
    """Parameters of FedLESAM and FedSAM."""

    rho: float = Field(
        0.1, ge=0, description="how far from the weights gradients are taken; 0 is FedAvg"
    )
    direction: Literal["global", "local"] = Field(
        "global",
        description="the way that the global model has come (FedLESAM), or the batch's own "
        "gradient (FedSAM: two gradients a step)",
    )


@register
class FedLESAM(Method[FedLESAMParams]):
    """FedAvg whose clients take each gradient a little uphill, so that they look for flat minima;
    uphill is where the global model came from since the client's last round.

    A step moves w against the gradient at w + rho v / |v|, with v = w_old - w_t, where w_old is the
    client's last download; v = 0 in its first round. FedSAM: v is the batch's gradient at w."""

    def client_state(self, model: Model) -> Values:
        if self.params.direction == "local":
            return {}
        return {"old": model.weights.detach().clone(), "participations": number(0)}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(down["model"])
        if self.params.direction == "local":
            step = self.by_the_batch(client)
        else:
            here = model.weights.detach().clone()
            way = state["old"] - here if state["participations"] else torch.zeros_like(here)
            step = self.along(self.uphill(way))
            state = {"old": here, "participations": state["participations"] + 1}
        self.train(client, model, step)
        trained = model.vector.clone()
        return Local({"model": trained}, state, {"model": trained})

    def train(self, client: Client, model: Model, shifted: Loss) -> None:
        """The local steps on a loss that moves the weights before it is taken; they are put back
        before each step."""
        if self.params.rho == 0:
            client.train(model, cross_entropy, client.steps)
            return
        weights, before = model.weights.detach(), model.weights.detach().clone()

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            before.copy_(weights)
            return shifted(model, x, y)

        def back(model: Model) -> None:
            weights.copy_(before)

        client.train(model, loss, client.steps, correct=back)

    def uphill(self, way: Tensor) -> Tensor:
        """rho v / |v|; nothing where there is no way."""
        return way.mul(self.params.rho / (torch.linalg.vector_norm(way) + 1e-7))

    def along(self, shift: Tensor) -> Loss:
        """FedLESAM: the loss at w + shift."""

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            model.weights.detach().add_(shift)
            return cross_entropy(model, x, y)

        return loss

    def by_the_batch(self, client: Client) -> Loss:
        """FedSAM: the loss at w + rho g / |g|, where g is the batch's gradient at w."""

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            client.gradient(model, cross_entropy, x, y)
            model.weights.detach().add_(self.uphill(model.grads))
            model.grads.zero_()
            with same_statistics(model):
                return cross_entropy(model, x, y)

        return loss


@contextmanager
def same_statistics(model: Model) -> Iterator[None]:
    """Inside, batch norm learns nothing of the batches: each counts once."""
    norms = nn.modules.batchnorm._BatchNorm
    layers = [m for m in model.net.modules() if isinstance(m, norms) and m.track_running_stats]
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True
