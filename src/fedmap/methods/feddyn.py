"""FedDyn. Acar et al., Federated learning based on dynamic regularization, ICLR 2021 (Algorithm 1)."""

from collections.abc import Sequence

import torch
from pydantic import Field

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods.base import (
    Local,
    Method,
    MethodParams,
    Server,
    Upload,
    Values,
    mean,
    register,
    tensor,
)
from fedmap.methods.parts.proximal import pull_towards
from fedmap.vector import Model


@register
class FedDyn(Method):
    """Clients remember how far training has carried them, and are regularized so that local and
    global optima agree.

    With h_k the sum of all w_k - w_t so far, local training minimizes L_k(w) + alpha / 2 ||w - (w_t
    - h_k)||^2, the paper's L_k(w) - <grad_k, w> + alpha / 2 ||w - w_t||^2 with grad_k = -alpha h_k.
    The server sends mean_S w_k + mean_K h_k."""

    class Params(MethodParams):
        alpha: float = Field(
            0.1, ge=0, description="strength of the dynamic regularizer; 0 is FedAvg"
        )

    groups = [{"alpha": 1e-3}, {"alpha": 1e-2}, {"alpha": 1e-1}]

    def client_state(self, model: Model) -> Values:
        return {"drift": torch.zeros(model.weight_count)}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(tensor(down, "model"))
        start, drift = model.weights.detach().clone(), tensor(state, "drift")
        client.train(
            model,
            cross_entropy,
            client.steps,
            correct=pull_towards(start - drift, self.params.alpha),
        )
        trained = model.vector.clone()
        return Local(
            up={"model": trained},
            state={"drift": drift + (model.weights.detach() - start)},
            personal={"model": trained},
        )

    def start(self, model: Model) -> Values:
        # the mean of all clients' drifts, zero as they are
        return super().start(model) | self.client_state(model)

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        drift = tensor(state, "drift").clone()
        weights = slice(len(drift))  # statistics of batch norm are averaged, not corrected
        for upload in uploads:
            drift.add_(
                tensor(upload.up, "model")[weights] - tensor(state, "model")[weights],
                alpha=1 / server.clients,
            )
        model = mean(uploads, "model")
        if (
            self.params.alpha > 0
            # grad_k / alpha does not depend on alpha: without a regularizer there is nothing to correct
        ):
            model[weights] += drift
        return {"model": model, "drift": drift}
