"""A classifier that local training leaves as it is, under which clients train the body alone.
Shared by FedNH, FedGELA and FedLoGe."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fedmap.client import EVALUATION_BATCH, Client
from fedmap.errors import FedmapError
from fedmap.losses import Loss
from fedmap.methods.base import Server, Upload
from fedmap.values import Values
from fedmap.vector import Model


def orthonormal_rows(drawn: Tensor) -> Tensor:
    """Rows of length 1, as many and as long as the drawn ones: orthogonal to each other, where
    there are at least as many dimensions as rows, else the directions of the rows of a matrix with
    orthonormal columns."""
    # In double on the CPU: the same rows on every device.
    wide = drawn.detach().cpu().double()
    rows = torch.linalg.qr(wide).Q if len(wide) > wide.shape[1] else torch.linalg.qr(wide.T).Q.T
    return F.normalize(rows).to(drawn)


def simplex(drawn: Tensor) -> Tensor:
    """As many rows of length 1 as were drawn, with the cosine -1 / (C - 1) between any two."""
    classes, dimensions = drawn.shape
    if dimensions < classes:
        raise FedmapError(
            f"a simplex of {classes} classes needs features of at least {classes} dimensions, but "
            f"the net's have {dimensions}; choose another net or another method"
        )
    rows = orthonormal_rows(drawn)
    return F.normalize(rows - rows.mean(0)) if classes > 1 else rows


def with_classifier(model: Model, rows: Tensor) -> Tensor:
    """The model's vector with these rows as its classifier. A bias is zero: the classes are told
    apart by the rows alone."""
    vector = model.vector.clone()
    vector[model.classifier_part] = 0
    model.named(vector)["classifier.weight"].copy_(rows)
    return vector


def trained_body(client: Client, down: Values, loss: Loss) -> Model:
    """The download after the local steps, which move its features' part alone."""
    model = client.model(down["model"])
    client.train(model, loss, client.steps, part=model.features_part)
    return model


def mean_body(server: Server, state: Values, uploads: Sequence[Upload]) -> Model:
    """The average of the uploads under the classifier that the server has, to the bit."""
    model = server.model(server.mean(uploads, "model"))
    kept = model.classifier_part
    model.weights.detach()[kept] = state["model"][kept]
    return model


@torch.no_grad()
def features_of(client: Client, model: Model) -> Tensor:
    """The features of all training samples, in evaluation mode."""
    parts = torch.split(client.train_data[0], EVALUATION_BATCH)
    return torch.cat([model.features(x) for x in parts])
