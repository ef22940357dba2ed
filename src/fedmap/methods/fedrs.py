"""FedRS. Li and Zhan, FedRS: federated learning with restricted softmax for label distribution
non-iid data, KDD 2021."""

from typing import Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from fedmap.client import Client
from fedmap.losses import Loss, class_scale
from fedmap.methods.base import Local, Method, Predictor, register
from fedmap.methods.parts.restricted import RestrictedParams, restricted
from fedmap.values import Values
from fedmap.vector import WorkingModels


class FedRSParams(RestrictedParams):
    """Those of the restricted softmax, and how a client answers."""

    factors: bool = Field(
        False, description="does a client's own model answer with the factors? the paper: no"
    )

    @model_validator(mode="after")
    def _has_factors(self) -> Self:
        if self.factors and self.mode == "removed":
            raise ValueError("factors is True; allowed with mode removed: False, it has no factors")
        return self


class Factored(nn.Module):
    """A net whose logits are multiplied by the factors of the classes."""

    factors: Tensor

    def __init__(self, net: nn.Module, factors: Tensor) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("factors", factors)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x) * self.factors
        return logits


@register
class FedRS(Method[FedRSParams]):
    """FedAvg whose clients hold back the proxies of classes that they do not have.

    A missing class's proxy is only ever pushed away from the features seen; scaling its logit by
    alpha scales that push (Eq. 9)."""

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return restricted(client, self.params)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local, chosen = super().local_round(client, down, state), self.params
        if not chosen.factors:
            return local
        factors = class_scale(client.counts, client.observed, chosen.alpha, chosen.mode)
        return local._replace(personal=local.personal | {"factors": factors})

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        net = models.model(personal["model"]).net
        return Factored(net, personal["factors"]) if "factors" in personal else net
