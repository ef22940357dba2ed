"""FedProto. Tan et al., FedProto: federated prototype learning across heterogeneous clients, AAAI
2022."""

from collections import deque
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from fedmap.client import Client
from fedmap.methods.base import Local, Method, MethodParams, Server, Upload, register
from fedmap.methods.parts.body import features_of
from fedmap.methods.parts.own_model import kept_own, trained, untrained
from fedmap.values import Values
from fedmap.vector import Model


class FedProtoParams(MethodParams):
    """Parameters of FedProto."""

    weight: float = Field(
        1.0,
        ge=0,
        description="lambda, the pull of a feature towards its class's global prototype",
    )


@register
class FedProto(Method[FedProtoParams]):
    """Clients share the mean feature of each class instead of weights; there is no global model.

    Each client trains its own model on L + lambda / (n d) sum_i ||h_i - P_{y_i}||^2, where P_c is
    the mean over clients that hold class c of their mean features of it (Algorithm 1). So what goes
    up says which classes a client holds."""

    trained = ()
    sends = {
        "prototypes": "the mean feature of each class that the client holds, made of its samples",
        "known": "which classes the client holds: "
        "a class's prototype is the mean over those that hold it",
    }

    not_averaged = "a class's prototype is the mean over the clients that hold it"

    def client_state(self, model: Model) -> Values:
        return untrained(model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        weight = self.params.weight
        prototypes, known = down["prototypes"], down["known"]
        batches = -(-client.samples // client.training.batch)
        last_epoch: deque[tuple[Tensor, Tensor]] = deque(maxlen=batches)

        def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
            h = model.features(x)
            last_epoch.append((h.detach(), y))
            away = (h - prototypes[y]).square().mean(1) * known[y]
            return F.cross_entropy(model.classify(h), y) + weight * away.mean()

        model = client.model(state["own"])
        client.train(model, loss, client.steps)
        if client.steps % batches:  # the last epoch is not whole: it lacks samples
            h, y = features_of(client, model), client.train_data[1]
        else:
            h, y = (torch.cat(parts) for parts in zip(*last_epoch, strict=True))
        state = trained(model, state)
        return Local(class_means(h, y, len(known)), state, {"model": state["own"]})

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values | None:
        return kept_own(state)

    def downloaded(self, down: Values, state: Values) -> Values | None:
        return {"model": state["own"]}

    def start(self, model: Model) -> Values:
        prototypes = torch.zeros_like(model.net.classifier.weight)
        return {"prototypes": prototypes, "known": prototypes.new_zeros(len(prototypes))}

    def download(self, state: Values) -> Values:
        return state

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        """The mean over the clients that hold a class; a class that nobody of the round holds keeps
        its prototype."""
        total, holders = (torch.zeros_like(state[name]) for name in ("prototypes", "known"))
        for upload in uploads:
            total += upload.weight * upload.up["prototypes"]
            holders += upload.weight * upload.up["known"]
        fresh = holders > 0
        prototypes = torch.where(fresh[:, None], total / holders[:, None], state["prototypes"])
        return {"prototypes": prototypes, "known": torch.where(fresh, 1.0, state["known"])}

    def global_model(self, state: Values) -> Tensor | None:
        return None


def class_means(h: Tensor, y: Tensor, classes: int) -> Values:
    """The mean feature of each class, and which classes have one; the others' rows are zero."""
    count = torch.bincount(y, minlength=classes)
    total = h.new_zeros(classes, h.shape[1]).index_add_(0, y, h)
    return {"prototypes": total / count.clamp_min(1)[:, None], "known": (count > 0).float()}
