"""FedDecorr. Shi et al., Towards understanding and mitigating dimensional collapse in heterogeneous
federated learning, ICLR 2023. FedMR. Fan et al., Federated learning under partially class-disjoint
data via manifold reshaping, TMLR 2023."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import Method, MethodParams, register
from fedmap.values import Values
from fedmap.vector import Model

LEAST_VARIANCE = 1e-8


class FedDecorrParams(MethodParams):
    """Parameters of FedDecorr, and whose features are compared."""

    weight: float = Field(
        0.01,  # not the authors' 0.1: docs/defaults.md
        ge=0,
        description="beta, how much the correlation counts; 0 is FedAvg",
    )
    within: bool = Field(
        False, description="are features decorrelated within each class (FedMR)? or in the batch"
    )


def correlation(h: Tensor, same: Tensor) -> Tensor:
    """sum over groups of the mean of K_ij^2 over i != j, by the number of samples in groups of two
    or more; `same` says which samples are of one group.

    K = Z^T Z, and Z are a group's features with mean 0 and variance 1, so that K_ij is the
    correlation of two features times one less than the samples."""
    together = same.to(h.dtype)
    n = together.sum(1, keepdim=True)  # of each sample's group
    away = h - together @ h / n
    var = together @ away.square() / (n - 1).clamp_min(1)
    z = away / (LEAST_VARIANCE + var).sqrt()
    # |Z^T Z| = |Z Z^T|, and the latter is small and gives all groups at once.
    whole = (together * (z @ z.T)).square().sum()
    diagonal = ((n - 1) * var / (LEAST_VARIANCE + var)).square().sum(1, keepdim=True) / n
    pairs = max(h.shape[1] * (h.shape[1] - 1), 1)
    return (whole - diagonal.sum()) / pairs / (n > 1).sum().clamp_min(1)


@register
class FedDecorr(Method[FedDecorrParams]):
    """FedAvg whose clients keep the dimensions of their features from following each other.

    CE + beta / B mean of K_ij^2 over i != j. Features of skewed clients collapse into few
    dimensions, and with them those of the global model. FedMR takes the features of each class by
    themselves."""

    presets = {"fedmr": {"within": True, "weight": 0.01}}

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        weight, within = self.params.weight, self.params.within

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            h = model.features(x)
            group = y if within else torch.zeros_like(y)
            return F.cross_entropy(model.classify(h), y) + weight * correlation(
                h, group[:, None] == group
            )

        return loss
