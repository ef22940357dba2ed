"""Control variates: what a client's gradient and everybody's mean gradient were lately, so that
local steps go the way of all. Shared by Scaffold, ScaRS and ScaMAP. They cover the weights;
statistics of batch norm have no gradient to correct."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import MethodParams, Upload, Values, tensor
from fedmap.vector import Model, shorten


class ControlParams(MethodParams):
    """Parameters of Scaffold's two halves."""

    server_lr: float = Field(
        1.0,
        gt=0,
        le=1,
        description="eta_g, how far the server goes from the old model to the clients' mean",
    )
    clip: float = Field(
        10.0, ge=0, description="longest gradient that enters a step and the variate; 0 is no limit"
    )


def no_control(model: Model) -> Values:
    """The variate of a client, or of the server, before the first round."""
    return {"control": torch.zeros(model.weight_count)}


def train_controlled(
    client: Client,
    model: Model,
    loss: Loss,
    steps: int,
    down: Values,
    state: Values,
    params: ControlParams,
) -> Tensor:
    """Plain SGD on gradient + c - c_k; gives the change of c_k by option II: (w_t - w_k) / (steps
    lr) - c.

    Momentum and weight decay would make w_t - w_k something other than the sum of the corrected
    gradients. Without a limit a spike in the gradient enters c_k, which drives the client's next
    round into a higher one."""
    start, everybodys = model.weights.detach().clone(), tensor(down, "control")
    shift = everybodys - tensor(state, "control")

    def correct(model: Model) -> None:
        if params.clip:
            shorten(model.grads, params.clip)
        model.grads.add_(shift)

    client.train(model, loss, steps, momentum=0, weight_decay=0, correct=correct)
    if steps == 0:  # nothing was learned of the client's gradient
        return torch.zeros_like(shift)
    return (start - model.weights.detach()) / (steps * client.lr) - everybodys


def moved_control(control: Tensor, uploads: Sequence[Upload], clients: int) -> Tensor:
    """c + the sum of the changes / K: it stays the mean of all clients' variates, those that did
    not take part included."""
    moved = control.clone()
    for upload in uploads:
        moved.add_(tensor(upload.up, "control"), alpha=1 / clients)
    return moved
