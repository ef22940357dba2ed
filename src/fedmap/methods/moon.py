"""MOON. Li, He and Song, Model-contrastive federated learning, CVPR 2021."""

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss, contrast
from fedmap.methods.base import Local, Method, MethodParams, register
from fedmap.values import Values
from fedmap.vector import Model


class MOONParams(MethodParams):
    """Parameters of MOON."""

    weight: float = Field(0.1, ge=0, description="mu, how much the contrast counts; 0 is FedAvg")
    temperature: float = Field(0.5, gt=0, description="tau of the contrast")


@register
class MOON(Method[MOONParams]):
    """FedAvg whose clients' features are drawn to the downloaded model's and away from their own
    previous model's.

    L_k + mu L_con with L_con = -log(e^(s_glob / tau) / (e^(s_glob / tau) + e^(s_prev / tau))); s is
    the cosine similarity of a sample's features h to those of the frozen download and of the model
    that this client had after its last participation."""

    sends = {"model": "the previous model that the client keeps is a copy of the one it uploads"}

    def client_state(self, model: Model) -> Values:
        return {"previous": model.vector.clone()}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(state={"previous": local.up["model"]})

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        near, far = (
            client.frozen(client.model(vector).features)
            for vector in (down["model"], state["previous"])
        )
        params = self.params

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            h = model.features(x)
            return F.cross_entropy(model.classify(h), y) + params.weight * contrast(
                h, near(x), far(x), params.temperature
            )

        return loss
