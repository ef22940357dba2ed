"""FedVLS. Guo et al., Exploring vacant classes in label-skewed federated learning, AAAI 2025."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import OUT, Loss, balanced_shift, distillation, label_places
from fedmap.methods.base import register
from fedmap.methods.parts.own_classes import AmongOwn, AmongOwnParams
from fedmap.values import Values
from fedmap.vector import Model

Form = Literal["code", "paper"]


class FedVLSParams(AmongOwnParams):
    """Parameters of FedVLS, and how a client answers."""

    weight: float = Field(
        0.1, ge=0, description="lambda, how much the download's opinion on missing classes counts"
    )
    suppression: float = Field(
        0.005, ge=0, description="kappa, how much logits of observed classes are held down"
    )
    form: Form = Field("code", description="the suppression of the authors' code or of the paper")


def among_missing(g: Tensor, teacher: Tensor, counts: Tensor) -> Tensor:
    """KL of the two softmaxes over the missing classes alone; 0 where there are none, or one."""
    present = counts > 0
    return distillation(g.masked_fill(present, OUT), teacher.masked_fill(present, OUT), 1.0)


def suppressed(g: Tensor, labels: Tensor, counts: Tensor, form: Form) -> Tensor:
    """sum over observed classes c of p_c log(1/B sum_i e_ic), with p_c = n_c / n.

    code:  e_ic = e^(g_ic) / (p_c C), and 1 where c is the label of sample i.
    paper: e_ic = e^(g_ic), and 0 where c is the label; a class that all of the batch has is left
           out."""
    shares, label = counts / counts.sum(), label_places(labels, len(counts))
    if form == "code":
        prior = torch.where(counts > 0, shares * len(counts), 1.0).log()
        entries = (g - prior).masked_fill(label, 0.0)
    else:
        entries = g.masked_fill(label, OUT)
    means = entries.logsumexp(0) - math.log(len(labels))
    return (shares * means.masked_fill(label.all(0), 0.0)).sum()


@register
class FedVLS(AmongOwn[FedVLSParams]):
    """FedAvg whose clients leave missing classes out of the softmax and keep the download's ranking
    among them.

    CE(g + log n_c, y), missing classes masked, + lambda KL(softmax(t) || softmax(g)) over the
    missing classes, t being the download's logits, + kappa times what holds down the logits of
    observed classes on samples of others, the frequent ones most."""

    presets = {"printed": {"form": "paper", "suppression": 1.0}}  # as the paper has it

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        teacher, params = client.frozen(client.model(down["model"])), self.params
        counts, shift = client.counts, balanced_shift(client.counts, 1.0)

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            g = model(x)
            return (
                F.cross_entropy(g + shift, y)
                + params.weight * among_missing(g, teacher(x), counts)
                + params.suppression * suppressed(g, y, counts, params.form)
            )

        return loss
