"""FedROD. Chen and Chao, On bridging generic and personalized federated learning for image
classification, ICLR 2022."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedmap.client import Client
from fedmap.losses import balanced_shift
from fedmap.methods.base import Local, Method, MethodParams, Predictor, register
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels


class TwoHeads(nn.Module):
    """The generic head's logits plus the personal head's."""

    def __init__(self, model: Model, head: Tensor) -> None:
        super().__init__()
        self.net = model.net
        self.head = nn.Parameter(head.clone())

    def forward(self, x: Tensor) -> Tensor:
        h = self.net.features(x)
        logits: Tensor = self.net.classifier(h) + F.linear(h, self.head)
        return logits


class FedRODParams(MethodParams):
    """Parameters of FedROD."""

    gamma: float = Field(
        1.0, ge=0, description="strength of the class prior in the balanced softmax"
    )


@register
class FedROD(Method[FedRODParams]):
    """One body with two heads: a generic one trained as if classes were balanced, and a personal
    one that stays.

    Body and generic head minimize the balanced softmax loss CE(g + gamma log n_c), masked for
    missing classes. The personal head p minimizes CE(g + p) on what it gets from them as constants,
    and a client predicts with g + p (linear version)."""

    def client_state(self, model: Model) -> Values:
        # at first a client predicts with the generic head
        return {"head": torch.zeros_like(model.net.classifier.weight)}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        shift = balanced_shift(client.counts, self.params.gamma)
        head = nn.Parameter(state["head"].clone())

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            h = model.features(x)
            g = model.classify(h)
            return F.cross_entropy(g + shift, y) + F.cross_entropy(
                g.detach() + F.linear(h.detach(), head), y
            )

        model = client.model(down["model"])
        client.train(model, loss, client.steps, also=[head])
        trained = model.vector.clone()
        return Local(
            {"model": trained}, {"head": head.detach()}, {"model": trained, "head": head.detach()}
        )

    def downloaded(self, down: Values, state: Values) -> Values | None:
        return {"model": down["model"]} | state

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        return TwoHeads(models.model(personal["model"]), personal["head"]).eval()
