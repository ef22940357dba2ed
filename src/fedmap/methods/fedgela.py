"""FedGELA. Fan et al., Federated learning with bilateral curation for partially class-disjoint
data, NeurIPS 2023. With `loss` etf: FedETF. Li et al., No fear of classifier biases: neural
collapse inspired federated learning with synthetic and fixed classifier, ICCV 2023."""

from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss, balanced_shift
from fedmap.methods.base import Local, Method, MethodParams, Predictor, Server, Upload, register
from fedmap.methods.fedrs import Factored
from fedmap.methods.parts.body import mean_body, simplex, trained_body, with_classifier
from fedmap.methods.parts.own_classes import OwnAnswers, own_classes
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels


class FedGELAParams(MethodParams):
    """Parameters of FedGELA and of FedETF's loss."""

    loss: Literal["gela", "etf"] = Field(
        "gela", description="logits times class shares (FedGELA), or balanced cosines (FedETF)"
    )
    scale: float = Field(1.0, gt=0, description="E_W, the length of the classifier's rows")
    adapt: bool = Field(
        True, description="gela: does a client stretch rows by its class shares? no is phi = 1"
    )
    temperature_factor: float = Field(10.0, gt=0, description="etf: beta, the factor on cosines")


@register
class FedGELA(Method[FedGELAParams]):
    """The classifier is a simplex that nobody moves; each client stretches its rows by its own
    class shares.

    E = sqrt(C / (C - 1)) (I - 1 1^T / C) Q^T: rows of length 1, all equally far apart. Clients
    train the body on CE(phi_c g_c) with g = scale E h and phi_c = C n_c / n, and answer with
    phi_c g_c; the global model answers with g. FedETF's loss is CE(beta e_c . h / |h| + log n_c)
    without missing classes, and a client answers among its own."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        trained = trained_body(client, down, self.local_loss(client, down, state)).vector.clone()
        return Local({"model": trained}, state, {"model": trained} | self.curation(client))

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        etf, beta = self.params.loss == "etf", self.params.temperature_factor / self.params.scale
        shift, factors = balanced_shift(client.counts, 1.0), self.curation(client).get("factors")

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            h, rows = model.features(x), model.net.classifier.weight.detach()
            if etf:
                return F.cross_entropy(beta * F.linear(F.normalize(h), rows) + shift, y)
            g = F.linear(h, rows)
            return F.cross_entropy(g if factors is None else g * factors, y)

        return loss

    def curation(self, client: Client) -> Values:
        """What a client's answer depends on beside its model."""
        if self.params.loss == "etf":
            return {"own": own_classes(client)}
        # First the product: with as many samples of every class the quotient is 1 to the bit.
        factors = len(client.counts) * client.counts / client.samples
        return {"factors": factors} if self.params.adapt else {}

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        net = models.model(personal["model"]).net
        if "own" in personal:
            return OwnAnswers(net, personal["own"], None, 0.0)
        return Factored(net, personal["factors"]) if "factors" in personal else net

    def start(self, model: Model) -> Values:
        rows = self.params.scale * simplex(model.net.classifier.weight)
        return {"model": with_classifier(model, rows)}

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        return {"model": mean_body(server, state, uploads).vector.clone()}
