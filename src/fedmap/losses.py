"""Losses as functions of (model, batch) and the pieces that they are made of: restricted softmax,
distillation, MMD."""

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedmap.vector import Model

Loss = Callable[[Model, Tensor, Tensor], Tensor]
RestrictedMode = Literal["binary", "soft", "share", "removed"]
OUT = -1e30  # the logit of a class that is out of a softmax: e^OUT is 0, and so is 0 times OUT


def cross_entropy(model: Model, x: Tensor, y: Tensor) -> Tensor:
    """Eq. 4: softmax cross-entropy over all classes, mean over the batch."""
    return F.cross_entropy(model(x), y)


def restricted_softmax(scale: Tensor) -> Loss:
    """Eq. 8: cross-entropy with each class's logit scaled by its alpha_c."""

    def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x) * scale, y)

    return loss


def balanced_softmax(shift: Tensor) -> Loss:
    """Cross-entropy with the shift of `balanced_shift` on the logits."""

    def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x) + shift, y)

    return loss


def class_scale(
    counts: Tensor, observed: Tensor, alpha: float, mode: RestrictedMode = "binary"
) -> Tensor:
    """The factors alpha_c of the restricted softmax from a client's class counts.

    binary: 1 for observed classes, alpha for missing ones (paper, Sect. 4.1.3).
    soft:   alpha + (1 - alpha) n_c / max n, which fits skewed but complete classes too.
    share:  n_c / sum n, the paper's form for complete classes (Sect. 5.4); alpha plays no part.

    In the mode `removed` there is no factor but a shift, see `balanced_shift`."""
    n = counts.float()
    if mode == "binary":
        return torch.where(observed, 1.0, alpha)
    if mode == "soft":
        return alpha + (1 - alpha) * n / n.max()
    return n / n.sum()


def distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Eq. 11: tau^2 KL(softmax(teacher / tau) || softmax(student / tau)), mean over the batch;
    arguments are logits."""
    target = F.log_softmax(teacher / temperature, dim=1)
    answer = F.log_softmax(student / temperature, dim=1)
    return temperature**2 * F.kl_div(answer, target, reduction="batchmean", log_target=True)


def label_places(labels: Tensor, classes: int) -> Tensor:
    """For each sample and class: is it the sample's label?"""
    return labels[:, None] == torch.arange(classes, device=labels.device)


def mmd(h: Tensor, other: Tensor) -> Tensor:
    """Eq. 12: squared maximum mean discrepancy of two feature batches under five Gaussian kernels.

    Bandwidths are 1/4, 1/2, 1, 2, 4 times the mean squared distance, which is held constant (as in
    DAN)."""
    # The bandwidth would follow the only distance: the same discrepancy, however near the two are.
    if len(h) == 1:
        return 0 * h.sum()
    both = torch.cat([h, other])
    # Distances stay the same; their rounding shrinks from the size of h to its spread.
    both = both - both.detach().mean(0)
    norms = both.square().sum(1)
    squared = (norms[:, None] + norms - 2 * both @ both.T).clamp_min(0)
    bandwidth = squared.detach().sum() / (len(both) ** 2 - len(both)) + 1e-8
    kernel = torch.stack(
        [torch.exp(-squared / (bandwidth * factor)) for factor in (0.25, 0.5, 1, 2, 4)]
    ).sum(0)
    n = len(h)
    return (
        kernel[:n, :n].mean()
        + kernel[n:, n:].mean()
        - kernel[:n, n:].mean()
        - kernel[n:, :n].mean()
    )


def contrast(h: Tensor, near: Tensor, far: Tensor, temperature: float) -> Tensor:
    """MOON's -log(e^(s_near / tau) / (e^(s_near / tau) + e^(s_far / tau))), mean over the batch; s
    is the cosine similarity to h."""
    return F.softplus(
        (F.cosine_similarity(h, far) - F.cosine_similarity(h, near)) / temperature
    ).mean()


def balanced_shift(counts: Tensor, gamma: float) -> Tensor:
    """What the balanced softmax adds to the logits while training: gamma log n_c, and -inf for a
    class without samples. (A missing class is then neither pulled nor pushed.)"""
    return torch.where(counts > 0, gamma * counts.clamp_min(1).log(), -torch.inf)
