"""FedNova. Wang et al., Tackling the objective inconsistency problem in heterogeneous federated
optimization, NeurIPS 2020."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from fedmap.client import Client
from fedmap.methods.base import Local, Method, MethodParams, Server, Upload, mean, register
from fedmap.methods.parts.proximal import pull_towards
from fedmap.values import Values, number
from fedmap.vector import Model


class FedNovaParams(MethodParams):
    """Parameters of FedNova."""

    server_momentum: float = Field(0.3, ge=0, lt=1, description="momentum of the server's changes")
    mu: float = Field(
        0.01,
        ge=0,
        description="strength of the proximal pull towards the download while training",
    )
    tau: Literal["normalized", "steps"] = Field(
        "normalized", description="tau_eff: the mean of a_k, or of the plain steps N_k"
    )


@register
class FedNova(Method[FedNovaParams]):
    """FedAvg that counts a client's change per effective local step, so that clients with more
    steps do not pull harder.

    w <- w + tau_eff sum_k p_k (w_k - w) / a_k, where a_k is how far one constant gradient would
    have carried client k's optimizer in its N_k steps, in units of lr, and tau_eff = sum_k p_k a_k
    (or sum_k p_k N_k)."""

    sends = {
        "a": "how far its optimizer went, which follows from its steps",
        "steps": "its local steps, by which the server divides; they tell its number of samples "
        "up to a batch",
    }
    not_averaged = "it divides each upload by the way that its client says it went"

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        downloaded = down["model"]
        model = client.model(downloaded)
        pull = pull_towards(downloaded, self.params.mu)
        client.train(model, self.local_loss(client, down, state), client.steps, correct=pull)
        trained = model.vector.clone()
        a = normalizer(client.steps, client.training.momentum, client.lr * self.params.mu)
        return Local(
            up={"model": trained, "a": number(a), "steps": number(client.steps)},
            state=state,
            personal={"model": trained},
        )

    def start(self, model: Model) -> Values:
        return super().start(model) | {"momentum": model.zeros()}

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        old, momentum = state["model"], state["momentum"]
        tau = weighted(uploads, "a" if self.params.tau == "normalized" else "steps")
        model = torch.zeros_like(old)
        # From the uploads' side: where all a_k agree this is FedAvg's sum to the bit
        for upload in uploads:
            share = tau / float(upload.up["a"])
            model.add_(torch.lerp(old, upload.up["model"], share), alpha=upload.weight)
        if len(old) > len(momentum):
            # Batch norm's statistics are no steps.
            model[len(momentum) :] = mean(uploads, "model")[len(momentum) :]
        weights = model[: len(momentum)]
        change = weights - old[: len(momentum)]
        weights.add_(momentum, alpha=self.params.server_momentum)
        return {"model": model, "momentum": self.params.server_momentum * momentum + change}


def normalizer(steps: int, momentum: float, pull: float) -> float:
    """a = ||a||_1: the way of SGD with momentum and a proximal pull (lr mu) under the constant
    gradient 1, in units of lr."""
    a = velocity = 0.0
    for _ in range(steps):
        velocity = momentum * velocity + 1 - pull * a
        a += velocity
    return a


def weighted(uploads: Sequence[Upload], name: str) -> float:
    """The weighted mean of a number, taken from the first one's side: exactly that number where all
    agree."""
    first = float(uploads[0].up[name])
    return first + sum(upload.weight * (float(upload.up[name]) - first) for upload in uploads)
