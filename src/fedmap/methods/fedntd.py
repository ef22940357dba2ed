"""FedNTD. Lee et al., Preservation of the global knowledge by not-true distillation in federated
learning, NeurIPS 2022. FedLMD. Lu et al., Federated learning with label-masking distillation, ACM
Multimedia 2023."""

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.losses import OUT, Loss, distillation, label_places
from fedmap.methods.base import Method, MethodParams, register
from fedmap.values import Values
from fedmap.vector import Model


class FedNTDParams(MethodParams):
    """Parameters of FedNTD, and which classes the teacher speaks about."""

    weight: float = Field(
        1.0, ge=0, description="beta, how much the distillation counts; 0 is FedAvg"
    )
    temperature: float = Field(1.0, gt=0, description="tau of the distillation")
    told: Literal["nottrue", "rare"] = Field(
        "nottrue",
        description="what the download tells of a sample: all classes but the label (FedNTD), or "
        "only those of them that are rare or missing here (FedLMD)",
    )


def frequent(counts: Tensor) -> Tensor:
    """The classes of which the client has more than on average: n_c > n / C."""
    return counts * len(counts) > counts.sum()


def not_true(
    g: Tensor, teacher: Tensor, labels: Tensor, silent: Tensor, temperature: float
) -> Tensor:
    """tau^2 KL(q_t || q_s), where q_s leaves out each sample's label, and q_t the classes besides
    that the teacher is silent about; not these, where nothing would be left to say."""
    label = label_places(labels, len(silent))
    out = label | silent
    out = torch.where(out.all(1, keepdim=True), label, out)
    return distillation(g.masked_fill(label, OUT), teacher.masked_fill(out, OUT), temperature)


@register
class FedNTD(Method[FedNTDParams]):
    """FedAvg whose clients keep the download's opinion on the classes other than a sample's label.

    CE(g, y) + beta tau^2 KL(q_t || q_s), where q_s is the softmax of g / tau over all classes but
    the label, and q_t the download's over the same classes or, as FedLMD has it, over those of them
    that are not frequent: n_c <= n / C."""

    presets = {"fedlmd": {"told": "rare"}}

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        teacher, params = client.frozen(client.model(down["model"])), self.params
        silent = frequent(client.counts) & (params.told == "rare")

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            g = model(x)
            return F.cross_entropy(g, y) + params.weight * not_true(
                g, teacher(x), y, silent, params.temperature
            )

        return loss
