"""FedMMD. Yao et al., Two-stream federated learning: reduce the communication costs, VCIP 2018."""

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss, mmd
from fedmap.methods.base import Method, MethodParams, register
from fedmap.values import Values
from fedmap.vector import Model


class FedMMDParams(MethodParams):
    """Parameters of FedMMD."""

    weight: float = Field(
        0.1, ge=0, description="lambda, how much the features' discrepancy counts; 0 is FedAvg"
    )


@register
class FedMMD(Method[FedMMDParams]):
    """FedAvg whose clients keep the distribution of their features near that of the downloaded
    model.

    Two streams see each batch, the model in training (h) and the frozen download (h_t): L_k +
    lambda MMD^2(h, h_t)."""

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        frozen = client.frozen(client.model(down["model"]).features)
        weight = self.params.weight

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            h = model.features(x)
            return F.cross_entropy(model.classify(h), y) + weight * mmd(h, frozen(x))

        return loss
