"""Answers among the client's own classes, and a second opinion of the downloaded model. Shared by
MAP and ScaMAP."""

import torch
from torch import Tensor, nn


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
