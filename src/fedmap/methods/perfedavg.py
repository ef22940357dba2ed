"""PerFedAvg. Fallah, Mokhtari and Ozdaglar, Personalized federated learning with theoretical
guarantees: a model-agnostic meta-learning approach, NeurIPS 2020."""

import torch
from pydantic import Field

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods.base import Local, Method, MethodParams, register
from fedmap.values import Values


class PerFedAvgParams(MethodParams):
    """Parameters of PerFedAvg."""

    inner: float = Field(
        0.3, ge=0, le=1, description="learning rate of the trial step, as a share of the run's"
    )
    beta: float = Field(0.1, gt=0, description="learning rate of the meta step")
    adaptation_steps: int = Field(
        0,
        ge=0,
        description="steps on further batches by which the personal model leaves the uploaded one",
    )


@register
class PerFedAvg(Method[PerFedAvgParams]):
    """FedAvg of a model that is good after one more step of training (first-order meta-learning).

    Each iteration takes two batches: w' = w - rho eta grad L_1(w), then w <- w - beta grad L_2(w'),
    both without momentum and weight decay (Algorithm 1, first-order)."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(down["model"])
        weights = model.weights.detach()
        beta = self.params.beta * client.lr / client.training.lr  # a warm-up holds for both rates
        batches = client.batches(2 * client.steps)
        model.net.train()
        for first, second in zip(batches, batches, strict=True):
            before = weights.clone()
            client.gradient(model, cross_entropy, *first)
            client.clip(model.grads)
            weights.sub_(model.grads, alpha=self.params.inner * client.lr)
            client.gradient(model, cross_entropy, *second)
            client.clip(model.grads)
            torch.sub(before, model.grads, alpha=beta, out=weights)
        uploaded = model.vector.clone()
        client.train(model, cross_entropy, self.params.adaptation_steps, momentum=0, weight_decay=0)
        return Local({"model": uploaded}, state, {"model": model.vector.clone()})
