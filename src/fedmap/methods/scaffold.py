"""Scaffold. Karimireddy et al., SCAFFOLD: stochastic controlled averaging for federated learning,
ICML 2020 (Algorithm 1)."""

from collections.abc import Sequence
from typing import TypeVar

import torch

from fedmap.client import Client
from fedmap.methods.base import Local, Method, Server, Upload, register
from fedmap.methods.parts.control import (
    ControlParams,
    moved_control,
    no_control,
    train_controlled,
)
from fedmap.values import Values
from fedmap.vector import Model

C = TypeVar("C", bound=ControlParams)


@register
class Scaffold(Method[C]):
    """Local steps are corrected by how the client's gradient has lately differed from everybody's.

    Local step (plain SGD): w <- w - lr (grad - c_k + c), then
    c_k <- c_k - c + (w_t - w_k) / (N lr) after N steps (option II).
    Server: w <- w + eta_g mean_S (w_k - w), c <- c + |S| / K mean_S (change of c_k)."""

    sends = {
        "control": "the change of the client's variate, as in the paper; "
        "the first change is the variate itself"
    }
    # A spike in the gradient enters c_k and drives the client's next round into a higher one.
    wants = {"clip": 10.0}
    uniform_weights_only = True  # c is the plain mean of all c_k

    def client_state(self, model: Model) -> Values:
        return no_control(model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model, loss = client.model(down["model"]), self.local_loss(client, down, state)
        change = train_controlled(client, model, loss, client.steps, down, state)
        trained = model.vector.clone()
        return Local(
            up={"model": trained, "control": change},
            state={"control": state["control"] + change},
            personal={"model": trained},
        )

    def start(self, model: Model) -> Values:
        return super().start(model) | no_control(model)

    def download(self, state: Values) -> Values:
        return state

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        model = torch.lerp(state["model"], server.mean(uploads, "model"), self.params.server_lr)
        control = moved_control(state["control"], uploads, server)
        return {"model": model, "control": control}
