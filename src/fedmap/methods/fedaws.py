"""FedAwS. Yu et al., Federated learning with only positive labels, ICML 2020."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.methods.base import Method, MethodParams, Server, Upload, register
from fedmap.values import Values


class FedAwSParams(MethodParams):
    """Parameters of FedAwS."""

    margin: float = Field(
        0.8,
        ge=0,
        le=1,
        description="nu, the distance from which on two proxies are far enough apart",
    )
    spread_steps: int = Field(30, ge=0, description="the server's steps a round; 0 is FedAvg")
    spread_lr: float = Field(0.1, gt=0, description="learning rate of these steps")


@register
class FedAwS(Method[FedAwSParams]):
    """FedAvg whose server then spreads the classes' proxies apart, which clients that miss classes
    cannot do themselves.

    After averaging, a few SGD steps on the classifier alone minimize mean_(c, c') max(0, nu - d(c,
    c'))^2 over pairs of different classes, with the distance d = (1 - cos(w_c, w_c')) / 2 in 0..1.
    """

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        model = server.model(server.mean(uploads, "model"))
        proxies = model.net.classifier.weight  # a view of the vector
        optimizer = torch.optim.SGD([proxies], lr=self.params.spread_lr, momentum=0.9)
        for _ in range(self.params.spread_steps):
            model.grads.zero_()
            closeness(proxies, self.params.margin).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        return {"model": model.vector.clone()}


def closeness(proxies: Tensor, margin: float) -> Tensor:
    """The spread-out penalty: how far the pairs of different proxies stay below the margin,
    squared, over C^2 entries."""
    unit = F.normalize(proxies)
    distance = (1 - unit @ unit.T) / 2
    short = (margin - distance).clamp_min(0).square()
    return (short.sum() - short.diagonal().sum()) / short.numel()
