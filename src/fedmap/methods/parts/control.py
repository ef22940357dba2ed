"""Control variates: what a client's gradient and everybody's mean gradient were lately, so that
local steps go the way of all. Shared by Scaffold, ScaRS and ScaMAP. They cover the weights;
statistics of batch norm have no gradient to correct."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import MethodParams, Server, Upload
from fedmap.values import Values
from fedmap.vector import Model


class ControlParams(MethodParams):
    """Parameters of Scaffold's two halves."""

    server_lr: float = Field(
        1.0,
        gt=0,
        le=1,
        description="eta_g, how far the server goes from the old model to the clients' mean",
    )


def no_control(model: Model) -> Values:
    """The variate of a client, or of the server, before the first round."""
    return {"control": model.zeros()}


def train_controlled(
    client: Client, model: Model, loss: Loss, steps: int, down: Values, state: Values
) -> Tensor:
    """Plain SGD on gradient + c - c_k; gives the change of c_k by option II:
    (w_t - w_k) / (steps lr) - c.

    Momentum and weight decay would make w_t - w_k something other than the sum of the corrected
    gradients."""
    start, everybodys = model.weights.detach().clone(), down["control"]
    shift = everybodys - state["control"]

    def correct(model: Model) -> None:
        model.grads.add_(shift)

    client.train(model, loss, steps, momentum=0, weight_decay=0, correct=correct)
    if steps == 0:  # nothing was learned of the client's gradient
        return torch.zeros_like(shift)
    return (start - model.weights.detach()) / (steps * client.lr) - everybodys


def moved_control(control: Tensor, uploads: Sequence[Upload], server: Server) -> Tensor:
    """c + the sum of the changes / K: it stays the mean of all clients' variates, those that did
    not take part included. Another average than the mean stands for all changes of the round."""
    moved = control.clone()
    if server.rule.kind != "mean":
        change = server.mean(uploads, "control")
        return moved.add_(change, alpha=len(uploads) / server.clients)
    for upload in uploads:
        moved.add_(upload.up["control"], alpha=1 / server.clients)
    return moved
