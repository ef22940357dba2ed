"""The inherited private model (HPM): a client's moving average of its own personalized models,
which stays on the client and teaches the next downloaded model. Shared by FedPHP and MAP."""

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss, cross_entropy, distillation, mmd
from fedmap.methods.base import MethodParams
from fedmap.values import Values, number
from fedmap.vector import Model


class HPMParams(MethodParams):
    """Parameters of the knowledge transfer from the HPM (Eq. 13) and of its moving average (Eq.
    10)."""

    transfer: Literal["kd", "mmd"] = Field(
        "kd", description="what the HPM hands on: outputs (distillation) or features (MMD)"
    )
    weight: float = Field(
        0.01, ge=0, le=1, description="lambda, the share of the knowledge transfer in the loss"
    )
    temperature: float = Field(4.0, gt=0, description="tau of the distillation")
    hpm_momentum: float = Field(
        0.9,
        ge=0,
        le=1,
        description="mu, the momentum of the HPM that a client reaches over the run",
    )


def no_hpm(model: Model) -> Values:
    """The state of a client that has no HPM yet."""
    return {"hpm": model.vector.clone(), "participations": number(0)}


def supervised(client: Client, state: Values, params: HPMParams) -> Loss:
    """Eq. 13: (1 - lambda) cross-entropy + lambda transfer from the HPM; plain cross-entropy while
    the client has no HPM."""
    if state["participations"] == 0 or params.weight == 0:
        return cross_entropy
    teacher = client.model(state["hpm"])
    taught = client.frozen(teacher if params.transfer == "kd" else teacher.features)

    def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
        h = model.features(x)
        logits = model.classify(h)
        if params.transfer == "kd":
            transfer = distillation(logits, taught(x), params.temperature)
        else:
            transfer = mmd(h, taught(x))
        return (1 - params.weight) * F.cross_entropy(logits, y) + params.weight * transfer

    return loss


def inherit(client: Client, state: Values, personalized: Model, params: HPMParams) -> Values:
    """Eq. 10 with mu_k = mu z / (expected participations) limited to [0, 1]; z counts the
    participations before this one, so the first HPM is the personalized model itself. The expected
    number is Q T where Q K is whole, and what the drawn max(int(Q K), 1) clients give elsewhere."""
    z = int(state["participations"])
    momentum = min(params.hpm_momentum * z / client.expected_participations, 1.0)
    hpm = personalized.vector.clone()
    if z:
        hpm = (1 - momentum) * hpm + momentum * state["hpm"]
    if len(personalized.buffers):
        hpm = client.with_fresh_statistics(hpm)
    return {"hpm": hpm, "participations": number(z + 1)}


def kept_hpm(state: Values) -> Values | None:
    """The HPM as a client's personal model, once it has one."""
    return {"model": state["hpm"]} if state["participations"] else None
