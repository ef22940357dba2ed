"""The restricted softmax with its parameters. Shared by FedRS, DittoRS, ScaRS, MAP and ScaMAP."""

from pydantic import Field

from fedmap.client import Client
from fedmap.losses import (
    Loss,
    RestrictedMode,
    balanced_shift,
    balanced_softmax,
    class_scale,
    restricted_softmax,
)
from fedmap.methods.base import MethodParams


class RestrictedParams(MethodParams):
    """Parameters of the restricted softmax (Eq. 8)."""

    alpha: float = Field(
        0.9,
        ge=0,
        le=1,
        description="factor on the logits of missing classes; 1 is the ordinary softmax",
    )
    mode: RestrictedMode = Field(
        "binary",
        description="how the factors follow from the class counts; removed takes missing classes "
        "out of the softmax, as FedROD does",
    )


def restricted(client: Client, params: RestrictedParams) -> Loss:
    """The restricted softmax loss for what this client observes."""
    if params.mode == "removed":
        return balanced_softmax(balanced_shift(client.counts, 1.0))
    scale = class_scale(client.counts, client.observed, params.alpha, params.mode)
    return restricted_softmax(scale)
