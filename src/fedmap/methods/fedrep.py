"""FedRep. Collins et al., Exploiting shared representations for personalized federated learning,
ICML 2021."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods.base import Local, Method, MethodParams, Server, Upload, register
from fedmap.values import Values
from fedmap.vector import Model


def on_fixed_features(model: Model, x: Tensor, y: Tensor) -> Tensor:
    """Cross-entropy of the classifier alone. The features run in training mode, so batch norm's
    statistics follow the data."""
    with torch.no_grad():
        h = model.features(x)
    return F.cross_entropy(model.classify(h), y)


class FedRepParams(MethodParams):
    """Parameters of FedRep."""

    head_share: float = Field(
        0.8,
        ge=0,
        le=1,
        description="share of the local steps that train the head; the rest train the body",
    )
    schedule: Literal["alternating", "joint"] = Field(
        "alternating", description="head then body, or both at once (FedPer)"
    )


@register
class FedRep(Method[FedRepParams]):
    """A body that all clients share and a head (classifier) that each keeps; there is no global
    model.

    Each participation trains the head on the fixed body, then the body under the fixed head
    (Algorithm 1); the server averages bodies. Statistics of batch norm belong to the body."""

    trained = ("features", "statistics")

    def client_state(self, model: Model) -> Values:
        return {"head": model.vector[model.classifier_part].clone()}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(put_together(down, state))
        if self.params.schedule == "joint":
            client.train(model, cross_entropy, client.steps)
        else:
            head_steps = int(self.params.head_share * client.steps + 1e-9)
            client.train(model, on_fixed_features, head_steps, part=model.classifier_part)
            client.train(model, cross_entropy, client.steps - head_steps, part=model.features_part)
        return Local(body(model), self.client_state(model), {"model": model.vector.clone()})

    def downloaded(self, down: Values, state: Values) -> Values | None:
        return {"model": put_together(down, state)}

    def start(self, model: Model) -> Values:
        return body(model)

    def download(self, state: Values) -> Values:
        return state

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        return {name: server.mean(uploads, name) for name in state}

    def global_model(self, state: Values) -> Tensor | None:
        return None


def body(model: Model) -> Values:
    """What is shared: all but the classifier."""
    return {
        "features": model.vector[model.features_part].clone(),
        "statistics": model.buffers.clone(),
    }


def put_together(body: Values, state: Values) -> Tensor:
    """The vector of the shared body with the client's own head."""
    return torch.cat([body["features"], state["head"], body["statistics"]])
