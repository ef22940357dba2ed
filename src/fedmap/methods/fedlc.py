"""FedLC. Zhang et al., Federated learning with label distribution skew via logits calibration,
ICML 2022."""

import torch
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss, balanced_softmax
from fedmap.methods.base import register
from fedmap.methods.parts.own_classes import AmongOwn, AmongOwnParams
from fedmap.values import Values


class FedLCParams(AmongOwnParams):
    """The margin, and how a client answers."""

    tau: float = Field(1.0, ge=0, description="size of the margins; 0 is the plain masked softmax")


def margins(counts: Tensor, tau: float) -> Tensor:
    """What is added to the logits while training: -tau n_c^(-1/4), and -inf, its limit, for a class
    without samples."""
    return torch.where(counts > 0, -tau * counts.clamp_min(1).pow(-0.25), -torch.inf)


@register
class FedLC(AmongOwn[FedLCParams]):
    """FedAvg whose clients learn with a larger margin for a class the fewer samples they have of
    it.

    CE(g - tau n_c^(-1/4), y): the fewer samples of a class, the higher its logit must be; a missing
    class is out of the softmax and gets no gradient."""

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return balanced_softmax(margins(client.counts, self.params.tau))
