"""Scaffold. Karimireddy et al., SCAFFOLD: stochastic controlled averaging for federated learning,
ICML 2020 (Algorithm 1)."""

from collections.abc import Sequence

import torch

from fedmap.client import Client
from fedmap.methods.base import Local, Method, Server, Upload, Values, mean, register, tensor
from fedmap.methods.parts.control import ControlParams, moved_control, no_control, train_controlled
from fedmap.vector import Model


@register
class Scaffold(Method):
    """Local steps are corrected by how the client's gradient has lately differed from everybody's.

    Local step (plain SGD): w <- w - lr (grad - c_k + c), then c_k <- c_k - c + (w_t - w_k) / (N lr)
    after N steps (option II). Server: w <- w + eta_g mean_S (w_k - w), c <- c + |S| / K mean_S
    (change of c_k)."""

    Params = ControlParams
    groups = [{"server_lr": 0.5}, {"server_lr": 0.75}, {"server_lr": 0.9}]
    sends = {
        "control": "the change of the client's variate, as in the paper; the first change is the variate itself"
    }

    def client_state(self, model: Model) -> Values:
        return no_control(model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(tensor(down, "model"))
        change = train_controlled(
            client,
            model,
            self.local_loss(client, down, state),
            client.steps,
            down,
            state,
            self.params,
        )
        trained = model.vector.clone()
        kept: Values = {"control": tensor(state, "control") + change}
        return Local(
            up={"model": trained, "control": change}, state=kept, personal={"model": trained}
        )

    def start(self, model: Model) -> Values:
        return super().start(model) | no_control(model)

    def download(self, state: Values) -> Values:
        return state

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        model = torch.lerp(tensor(state, "model"), mean(uploads, "model"), self.params.server_lr)
        return {
            "model": model,
            "control": moved_control(tensor(state, "control"), uploads, server.clients),
        }
