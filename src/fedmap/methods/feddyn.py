"""FedDyn. Acar et al., Federated learning based on dynamic regularization, ICLR 2021
(Algorithm 1)."""

from collections.abc import Sequence

from pydantic import Field

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods.base import Local, Method, MethodParams, Server, Upload, register
from fedmap.methods.parts.proximal import pull_towards
from fedmap.values import Values
from fedmap.vector import Model


class FedDynParams(MethodParams):
    """Parameters of FedDyn."""

    alpha: float = Field(0.1, ge=0, description="strength of the dynamic regularizer; 0 is FedAvg")


@register
class FedDyn(Method[FedDynParams]):
    """Clients remember how far training has carried them, and are regularized so that local and
    global optima agree.

    With h_k the sum of all w_k - w_t so far, local training minimizes
    L_k(w) + alpha / 2 ||w - (w_t - h_k)||^2, the paper's
    L_k(w) - <grad_k, w> + alpha / 2 ||w - w_t||^2 with grad_k = -alpha h_k.
    The server sends mean_S w_k + mean_K h_k."""

    uniform_weights_only = True  # the server's drift is the plain mean of all h_k

    def client_state(self, model: Model) -> Values:
        return {"drift": model.zeros()}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(down["model"])
        start, drift = model.weights.detach().clone(), state["drift"]
        pull = pull_towards(start - drift, self.params.alpha)
        client.train(model, cross_entropy, client.steps, correct=pull)
        trained = model.vector.clone()
        return Local(
            up={"model": trained},
            state={"drift": drift + (model.weights.detach() - start)},
            personal={"model": trained},
        )

    def start(self, model: Model) -> Values:
        # The mean of all clients' drifts, zero as they are.
        return super().start(model) | self.client_state(model)

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        drift = state["drift"].clone()
        weights = slice(len(drift))  # statistics of batch norm are averaged, not corrected
        model = server.mean(uploads, "model")
        if server.rule.kind == "mean":
            for upload in uploads:
                change = upload.up["model"][weights] - state["model"][weights]
                drift.add_(change, alpha=1 / server.clients)
        else:  # the average stands for every upload of the round
            change = model[weights] - state["model"][weights]
            drift.add_(change, alpha=len(uploads) / server.clients)
        # grad_k / alpha does not depend on alpha: without a regularizer nothing is corrected.
        if self.params.alpha > 0:
            model[weights] += drift
        return {"model": model, "drift": drift}
