"""FedLoGe. Xiao et al., FedLoGe: joint local and generic federated learning under long-tailed data,
ICLR 2024."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fedmap.client import Client
from fedmap.methods.base import Local, Method, MethodParams, Predictor, Server, Upload, register
from fedmap.methods.parts.body import simplex, with_classifier
from fedmap.methods.parts.own_classes import OwnAnswers, own_classes
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels


class FedLoGeParams(MethodParams):
    """Parameters of FedLoGe."""

    sparsity: float = Field(
        0.6, ge=0, lt=1, description="share of the features that the fixed head is blind to"
    )
    scale: float = Field(1.0, gt=0, description="the length of the fixed head's rows")
    head: Literal["fixed", "aligned", "plain"] = Field(
        "fixed",
        description="what the global model answers with: the fixed head, the generic head with "
        "rows of one length, or the generic head as it is",
    )


@register
class FedLoGe(Method[FedLoGeParams]):
    """One body with three heads: a fixed sparse simplex that the body learns from, a generic one
    and a private one that learn on features they cannot move.

    Clients minimize CE(F h) + CE(G h) + CE(P h), where h is a constant to G and P. Bodies and G are
    averaged; P stays. The global model answers with F, or with the rows G_c / |G_c|, and a client
    with G_c (1 + |P_c|) among its own classes."""

    def client_state(self, model: Model) -> Values:
        # F is made of the common first model, so that nobody has to send it.
        return {"head": torch.zeros_like(model.net.classifier.weight), "fixed": self.fixed(model)}

    def fixed(self, model: Model) -> Tensor:
        """F, the same for everybody: a simplex in some dimensions of the features, at least as many
        as there are classes, and zero in the others."""
        drawn = model.net.classifier.weight.detach()
        classes, dimensions = drawn.shape
        seen = max(round((1 - self.params.sparsity) * dimensions), classes)
        # Which dimensions is up to chance: those with the longest columns as they were drawn. A
        # length knows no sign, so no class is favored after a ReLU.
        longest = drawn.cpu().double().norm(dim=0).argsort(descending=True, stable=True)
        places = longest[:seen].sort().values.to(drawn.device)
        rows = self.params.scale * simplex(drawn.index_select(1, places))
        return torch.zeros_like(drawn).index_copy(1, places, rows)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        head, fixed = nn.Parameter(state["head"].clone()), state["fixed"]

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            h = model.features(x)
            constant = h.detach()
            answers = (F.linear(h, fixed), model.classify(constant), F.linear(constant, head))
            return torch.stack([F.cross_entropy(answer, y) for answer in answers]).sum()

        model = client.model(down["model"])
        client.train(model, loss, client.steps, also=[head])
        trained, private = model.vector.clone(), {"head": head.detach()}
        personal = {"model": trained, "own": own_classes(client)} | private
        return Local({"model": trained}, state | private, personal)

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        net = models.model(personal["model"]).net
        if "head" not in personal:  # a download
            return net
        with torch.no_grad():
            net.classifier.weight *= 1 + personal["head"].norm(dim=1, keepdim=True)
        return OwnAnswers(net, personal["own"], None, 0.0)

    def start(self, model: Model) -> Values:
        return {"model": model.vector.clone(), "answers": self.answering(model, self.fixed(model))}

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        mean = server.mean(uploads, "model")
        model = server.model(mean)
        fixed = model.named(state["answers"])["classifier.weight"]
        return {"model": mean, "answers": self.answering(model, fixed)}

    def answering(self, model: Model, fixed: Tensor) -> Tensor:
        """The global model under the head that it answers with."""
        if self.params.head == "plain":
            return model.vector.clone()
        aligned = F.normalize(model.net.classifier.weight.detach())
        return with_classifier(model, fixed if self.params.head == "fixed" else aligned)

    def global_model(self, state: Values) -> Tensor:
        return state["answers"]
