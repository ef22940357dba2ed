"""kNN-Per. Marfoq et al., Personalized federated learning through local memorization, ICML 2022."""

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedmap.client import EVALUATION_BATCH, Client
from fedmap.methods.base import Local, Method, MethodParams, Predictor, register
from fedmap.methods.parts.body import features_of
from fedmap.nets import Net
from fedmap.values import Values, number
from fedmap.vector import WorkingModels

MIXES = [tenth / 10 for tenth in range(11)]  # that a client chooses from
SPARE = 8  # stored samples beyond k that are measured exactly


class KNNPerParams(MethodParams):
    """Parameters of kNN-Per."""

    neighbors: int = Field(
        7, ge=1, description="k, how many of the own samples have a say; at most all"
    )
    kernel: float = Field(
        1.0, gt=0, description="sigma: the larger, the more distant neighbors weigh"
    )
    mix: float | None = Field(
        None,
        ge=0,
        le=1,
        description="lambda, the neighbors' share; None: each client chooses it by its own "
        "training samples, each without itself among its neighbors",
    )


class Neighbors(nn.Module):
    """lambda q(x) + (1 - lambda) softmax(g(x)), as logarithms. q(x) are the classes of the k stored
    samples that are nearest to x in feature space, weighted by exp(-|z - h_i|^2 / (d sigma))."""

    center: Tensor
    stored: Tensor
    classes: Tensor

    def __init__(self, net: Net, personal: Values, params: KNNPerParams) -> None:
        super().__init__()
        self.net = net
        features = personal["features"]
        # Distances stay the same; their rounding shrinks from the size of h to its spread.
        self.register_buffer("center", features.mean(0))
        self.register_buffer("stored", features - features.mean(0))
        self.register_buffer(
            "classes", F.one_hot(personal["labels"], net.classifier.out_features).float()
        )
        self.width = features.shape[1] * params.kernel
        self.mix, self.k = float(personal["mix"]), min(params.neighbors, len(features))

    def forward(self, x: Tensor) -> Tensor:
        h = self.net.features(x)
        answer = torch.softmax(self.net.classifier(h), 1)
        return (self.mix * self.neighbors(h) + (1 - self.mix) * answer).log()

    def neighbors(self, h: Tensor, left_out: Tensor | None = None) -> Tensor:
        """q of each feature; where its own entry is left out, as if it were not stored."""
        z = h - self.center
        lengths = z.square().sum(1, keepdim=True) + self.stored.square().sum(1)
        squared = lengths - 2 * z @ self.stored.T
        if left_out is not None:
            squared = squared.scatter(1, left_out[:, None], torch.inf)
        # What is nearly the same cancels in that formula: it finds who is near, and which of these
        # are the nearest is then measured without it.
        near = squared.topk(min(self.k + SPARE, len(self.stored)), largest=False)
        apart = (z[:, None] - self.stored[near.indices]).square().sum(2)
        apart = apart.masked_fill(near.values.isinf(), torch.inf)
        nearest = apart.topk(self.k, largest=False)
        # A softmax is the quotient of the formula, and none of it underflows.
        weights = torch.softmax(-nearest.values / self.width, 1)
        classes = self.classes[near.indices.gather(1, nearest.indices)]
        return (weights[:, :, None] * classes).sum(1)


@register
class kNNPer(Method[KNNPerParams]):  # noqa: N801 (as its authors write it)
    """FedAvg whose clients answer with the downloaded model and their own nearest samples together.

    A client stores the features of its training samples under the download, with their labels, and
    answers with lambda q(x) + (1 - lambda) softmax(g(x))."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        personal = self.kept_personal(client, down, state)
        return super().local_round(client, down, state)._replace(personal=personal)

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values:
        model = client.model(down["model"])
        personal = {
            "model": down["model"],
            "features": features_of(client, model),
            "labels": client.train_data[1],
            "mix": number(1.0 if self.params.mix is None else self.params.mix),
        }
        if self.params.mix is None and client.samples > 1:
            stored = Neighbors(model.net, personal, self.params)
            personal["mix"] = number(best_mix(stored, personal))
        return personal

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        net = models.model(personal["model"]).net
        if not personal.get("mix", 0):  # the download alone, without a rounding
            return net
        return Neighbors(net, personal, self.params)


@torch.no_grad()
def best_mix(stored: Neighbors, personal: Values) -> float:
    """The mix under which most training samples are answered rightly, each without its own entry
    in the store; the smallest of several."""
    h, y = personal["features"], personal["labels"]
    stored.k = min(stored.k, len(y) - 1)
    right = [0] * len(MIXES)
    for own in torch.split(torch.arange(len(y), device=y.device), EVALUATION_BATCH):
        q = stored.neighbors(h[own], left_out=own)
        answer = torch.softmax(stored.net.classifier(h[own]), 1)
        for place, mix in enumerate(MIXES):
            right[place] += int(((mix * q + (1 - mix) * answer).argmax(1) == y[own]).sum())
    return MIXES[right.index(max(right))]
