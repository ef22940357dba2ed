"""pFedMe. Dinh, Tran and Nguyen, Personalized federated learning with Moreau envelopes, NeurIPS
2020."""

from collections.abc import Sequence

import torch
from pydantic import Field

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods.base import Local, Method, MethodParams, Server, Upload, register
from fedmap.methods.parts.proximal import pull_towards
from fedmap.values import Values
from fedmap.vector import SGD


class PFedMeParams(MethodParams):
    """Parameters of pFedMe."""

    weight: float = Field(
        0.1, ge=0, description="lambda, the pull of the personal model towards its reference"
    )
    alpha: float = Field(
        0.9,
        ge=0,
        le=1,
        description="how far the reference follows; the original's is lambda times its outer rate",
    )
    inner_steps: int = Field(5, ge=1, description="K, the steps on each batch")
    beta: float = Field(
        1.0, ge=0, description="how far the server goes to the mean; above 1 beyond it"
    )


@register
class pFedMe(Method[PFedMeParams]):  # noqa: N801  (as its authors write it; tables show this name)
    """Personal models near a reference that follows them; the references are averaged.

    On each batch the personal model takes K steps of plain SGD on
    L(theta) + lambda / 2 ||theta - w_k||^2, then the reference moves by
    w_k <- w_k - alpha (w_k - theta). The server takes w <- (1 - beta) w + beta mean_k w_k
    (Algorithm 1)."""

    # The authors' lambda 15 and outer rate 0.005.
    presets = {"original": {"weight": 15.0, "alpha": 0.075, "inner_steps": 5, "beta": 1.0}}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        theta = client.model(down["model"])
        reference = theta.weights.detach().clone()
        pull = pull_towards(reference, self.params.weight)
        optimizer = SGD([theta.weights], client.lr, weight_decay=client.training.weight_decay)
        theta.net.train()
        for x, y in client.batches(client.steps):
            for _ in range(self.params.inner_steps):
                client.gradient(theta, cross_entropy, x, y)
                pull(theta)
                client.clip(theta.grads)
                optimizer.step()
            reference.lerp_(theta.weights.detach(), self.params.alpha)
        theta.net.eval()
        personal = theta.vector.clone()
        return Local({"model": torch.cat([reference, theta.buffers])}, state, {"model": personal})

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        model = server.mean(uploads, "model")
        # Beyond the mean a variance could turn negative
        weights = slice(server.model(model).weight_count)
        model[weights] = torch.lerp(state["model"][weights], model[weights], self.params.beta)
        return {"model": model}
