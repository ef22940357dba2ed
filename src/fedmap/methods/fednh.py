"""FedNH. Dai et al., Tackling data heterogeneity in federated learning with class prototypes, AAAI
2023."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import Local, Method, MethodParams, Server, Upload, register
from fedmap.methods.parts.body import (
    features_of,
    mean_body,
    orthonormal_rows,
    trained_body,
    with_classifier,
)
from fedmap.values import Values
from fedmap.vector import Model


class FedNHParams(MethodParams):
    """Parameters of FedNH."""

    rho: float = Field(
        0.9, ge=0, le=1, description="how much of a prototype stays in a round; 1 never moves it"
    )
    scale: float = Field(10.0, gt=0, description="s, the factor on the cosines while training")


@register
class FedNH(Method[FedNHParams]):
    """The classifier's rows are class prototypes, which no client trains: the server moves them
    towards the mean directions of the clients' features.

    Clients train the body on CE(s w_c . u) with u = h / |h|, then send n_c mu_c, where mu_c is the
    direction of the mean of u over class c. Server: with v_c the direction of sum_k n_kc mu_kc,
    w_c <- direction of (rho w_c + (1 - rho) v_c); a class that nobody has keeps its row."""

    sends = {
        "prototypes": "the mean direction of each class's features times how many samples it has, "
        "made of the client's samples; it tells which classes it holds, and how many of each",
    }
    not_averaged = "a class's prototype moves by the sum over the clients that hold it"

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        scale = self.params.scale

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            u = F.normalize(model.features(x))
            cosines = F.linear(u, model.net.classifier.weight.detach())
            return F.cross_entropy(scale * cosines, y)

        return loss

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = trained_body(client, down, self.local_loss(client, down, state))
        trained = model.vector.clone()
        u, y = F.normalize(features_of(client, model)), client.train_data[1]
        sums = torch.zeros_like(model.net.classifier.weight).index_add_(0, y, u)
        up = {"model": trained, "prototypes": client.counts[:, None] * F.normalize(sums)}
        return Local(up, state, {"model": trained})

    def start(self, model: Model) -> Values:
        rows = orthonormal_rows(model.net.classifier.weight)
        return {"model": with_classifier(model, rows)}

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        model, rho = mean_body(server, state, uploads), self.params.rho
        rows = model.net.classifier.weight.detach()  # a view of the vector
        sums = torch.zeros_like(rows)
        for upload in uploads:
            sums += upload.up["prototypes"]
        if rho < 1:  # to take the length again would cost a rounding
            moved = F.normalize(rho * rows + (1 - rho) * F.normalize(sums))
            rows.copy_(torch.where(sums.any(1, keepdim=True), moved, rows))
        return {"model": model.vector.clone()}
