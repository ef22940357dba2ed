"""FedOpt. Reddi et al., Adaptive federated optimization, ICLR 2021 (Algorithm 2); with SGD it is
FedAvgM of Hsu et al., Measuring the effects of non-identical data distribution for federated visual
classification, 2019."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fedmap.methods.base import Method, MethodParams, Server, Upload, register
from fedmap.values import Values
from fedmap.vector import Model


class FedOptParams(MethodParams):
    """Parameters of FedOpt."""

    optimizer: Literal["sgd", "adam", "yogi", "adagrad"] = Field(
        "sgd", description="the server's optimizer"
    )
    server_lr: float = Field(
        0.1,
        gt=0,
        le=10,
        description="the server's learning rate; SGD with 1 and no momentum is FedAvg",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="beta_1, the momentum of the mean change")
    beta: float = Field(
        0.99,
        ge=0,
        lt=1,
        description="beta_2 of Adam and Yogi, the memory of the squared change",
    )
    tau: float = Field(
        1e-3,
        gt=0,
        description="adaptivity of Adam, Yogi and Adagrad: what is added to the root of v",
    )


@register
class FedOpt(Method[FedOptParams]):
    """FedAvg whose server takes the clients' mean change as a gradient for an optimizer: SGD, Adam,
    Yogi or Adagrad.

    With d = mean_k w_k - w:
    SGD m <- b1 m + d, w <- w + lr m;
    the others m <- b1 m + (1 - b1) d, w <- w + lr m / (sqrt(v) + tau), with
    v <- v + d^2 (Adagrad), b2 v + (1 - b2) d^2 (Adam), v - (1 - b2) d^2 sign(v - d^2) (Yogi)."""

    presets = {
        "fedavgm": {"optimizer": "sgd", "server_lr": 0.1},
        "fedadam": {"optimizer": "adam", "server_lr": 0.01},
        "fedyogi": {"optimizer": "yogi", "server_lr": 0.01},
        "fedadagrad": {"optimizer": "adagrad", "server_lr": 0.01, "momentum": 0.0},
    }

    def start(self, model: Model) -> Values:
        state = super().start(model) | {"m": model.zeros()}
        if self.params.optimizer != "sgd":
            state["v"] = torch.full_like(state["m"], self.params.tau**2)
        return state

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        params, m = self.params, state["m"]
        # Batch norm's statistics are no gradient: they keep the mean.
        model = server.mean(uploads, "model")
        old, averaged = state["model"][: len(m)], model[: len(m)]
        change = averaged - old
        if params.optimizer == "sgd":
            # w + lr (b1 m + d) from the mean's side, so that lr 1 without momentum is the mean to
            # the bit.
            stepped = torch.lerp(old, averaged, params.server_lr)
            stepped.add_(m, alpha=params.server_lr * params.momentum)
            new: Values = {"m": params.momentum * m + change}
        else:
            m = params.momentum * m + (1 - params.momentum) * change
            v = self.second_moment(state["v"], change.square())
            stepped = old + params.server_lr * m / (v.sqrt() + params.tau)
            new = {"m": m, "v": v}
        model[: len(m)] = stepped
        return {"model": model} | new

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        """Of the squared change, by the rule of the optimizer."""
        beta = self.params.beta
        if self.params.optimizer == "adagrad":
            return v + squared
        if self.params.optimizer == "adam":
            return beta * v + (1 - beta) * squared
        return v - (1 - beta) * squared * torch.sign(v - squared)
