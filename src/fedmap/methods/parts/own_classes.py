"""Answers among the client's own classes, and a second opinion of the downloaded model. Shared by
MAP, ScaMAP, FedLC, FedVLS, FedGELA and FedLoGe."""

from typing import TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from fedmap.client import Client
from fedmap.methods.base import Local, Method, MethodParams, Predictor
from fedmap.values import Values
from fedmap.vector import WorkingModels


def own_classes(client: Client) -> Tensor:
    """For each class: has the client a training sample of it? On FEMNIST a class counts as observed
    from two on, but with one it is in the loss and may be the answer."""
    return client.counts > 0


class OwnAnswers(nn.Module):
    """q(x) = (1 - omega) softmax over O of g_own(x) + omega softmax over O of g_download(x), as
    logarithms; O is all classes where none are given. With omega = 0 these are the model's own
    logits, minus infinity for a class outside O."""

    def __init__(
        self, model: nn.Module, own: Tensor | None, download: nn.Module | None, opinion: float
    ) -> None:
        super().__init__()
        self.model = model
        self.download = download
        self.opinion = opinion
        self.missing: Tensor | None
        self.register_buffer("missing", None if own is None else ~own)

    def forward(self, x: Tensor) -> Tensor:
        if self.download is None:
            return self._among_own(self.model(x))
        own, second = (
            torch.softmax(self._among_own(net(x)), 1) for net in (self.model, self.download)
        )
        return ((1 - self.opinion) * own + self.opinion * second).log()

    def _among_own(self, logits: Tensor) -> Tensor:
        if self.missing is None:
            return logits
        return logits.masked_fill(self.missing, -torch.inf)


class AmongOwnParams(MethodParams):
    """How a client answers whose training has left the logits of missing classes free."""

    own: bool = Field(True, description="does a client answer among its own classes only?")


Q = TypeVar("Q", bound=AmongOwnParams)


class AmongOwn(Method[Q]):
    """FedAvg's frame, in which a client's own model answers among the classes that the client has:
    where missing classes are out of the softmax, nothing in training has pushed them down."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        own = {"own": own_classes(client)} if self.params.own else {}
        return local._replace(personal=local.personal | own)

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        net = models.model(personal["model"]).net
        return OwnAnswers(net, personal["own"], None, 0.0) if "own" in personal else net
