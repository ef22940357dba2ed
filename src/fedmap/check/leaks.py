"""Does an upload tell what only training may tell? One client's round is done again and again on
other labels and other samples, everything else the same, noise included. A number that follows the
samples whatever the labels are, or the labels whatever the samples are, has not come from training:
it was copied, scaled or counted."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedmap.client import Client, Training
from fedmap.federation import ClientData
from fedmap.methods import AnyMethod
from fedmap.nets import build
from fedmap.random import generator, seeded_torch
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels

SHAPE, CLASSES, SAMPLES, DRAWS = (1, 6, 6), 4, 10, 4
EXACT = 1e-8  # how far a correlation may be from one that is no chance
# As many samples of every client: the number of steps tells nothing here.
LABELS = [(0, 1, 2, 3) * 2 + (0, 1), (0, 2) * 5, (1,) * 7 + (3,) * 3, (2, 3, 3, 1, 1) * 2]


class Found(Exception):  # noqa: N818 (it is an answer)
    """What an upload tells, and in which entry."""


def look(method: AnyMethod, net: str) -> None:
    """Raise what is found, where an entry tells what it must not. Entries that the method explains
    in `sends` are its own affair; test samples never leave."""
    models, initial = _models(net)
    drawn = [_samples(draw) for draw in range(DRAWS)]
    grid = [
        [_upload(method, models, initial, _data(x, labels)) for x in drawn] for labels in LABELS
    ]
    first = _data(drawn[0], LABELS[0])
    other = replace(first, test=(drawn[1], first.test[1].flip(0)))
    _depends_on_tests(grid[0][0], _upload(method, models, initial, other))
    for entry in grid[0][0]:
        if entry in method.trained or entry not in method.sends:
            table = torch.stack([torch.stack([up[entry].reshape(-1) for up in u]) for u in grid])
            _follows(table.double(), entry)
            _sums_up(table.double(), torch.stack(drawn).double(), entry)
            _is_declared(method, entry)


def keeps_shapes(method: AnyMethod, net: str) -> None:
    """Raise what is found, where an entry is not of the size of what came down: more could hide
    there."""
    models, initial = _models(net)
    down = method.download(method.start(initial))
    for entry, value in _upload(method, models, initial, _data(_samples(0), LABELS[0])).items():
        came = tuple(down[entry].shape) if entry in down else None
        if entry in method.trained and came != tuple(value.shape):
            raise Found(
                f"it uploads {entry!r} of {tuple(value.shape)}, but of {came} came down; what is "
                "trained keeps its shape"
            )


def _models(net: str) -> tuple[WorkingModels, Model]:
    return WorkingModels(lambda: build(net, SHAPE, CLASSES, 0)), Model(
        build(net, SHAPE, CLASSES, 0)
    )


def _samples(draw: int) -> Tensor:
    rng = generator(0, "check leaks", draw)
    return torch.from_numpy(rng.standard_normal((SAMPLES, *SHAPE), np.float32))


def _data(x: Tensor, labels: tuple[int, ...]) -> ClientData:
    y = torch.tensor(labels)
    counts = torch.bincount(y, minlength=CLASSES)
    return ClientData(0, (x, y), (x.flip(0), y.flip(0)), counts, counts > 0, (), (), False)


def _upload(method: AnyMethod, models: WorkingModels, initial: Model, data: ClientData) -> Values:
    """What a newcomer with this data uploads in a first round."""
    models.release()
    client = Client(data, 1, Training(epochs=1, batch=4), 0, models, 2.0)
    down = {n: v.clone() for n, v in method.download(method.start(initial)).items()}
    with torch.enable_grad(), seeded_torch(0, "layers", 1, 0):
        up = method.local_round(client, down, method.client_state(initial)).up
    return {n: v.clone() for n, v in up.items() if isinstance(v, Tensor)}


def _depends_on_tests(up: Values, other: Values) -> None:
    for entry, value in up.items():
        if not torch.equal(value, other[entry]):
            raise Found(f"what it uploads in {entry!r} follows its test samples")


def _follows(table: Tensor, entry: str) -> None:
    """Numbers of the table are by labels, by samples, and by place in the entry."""
    by_labels = (table != table[:1]).any(0).any(0)  # do other labels change it?
    by_samples = (table != table[:, :1]).any(0).any(0)
    for alone, what in (
        (by_samples & ~by_labels, "its samples, whatever their labels are"),
        (by_labels & ~by_samples, "its labels or their counts, whatever the samples are"),
    ):
        if alone.any():
            place = int(alone.nonzero()[0])
            raise Found(
                f"what it uploads in {entry!r} (number {place}, of {int(alone.sum())}) follows "
                f"{what}; training does not do that"
            )


def _sums_up(table: Tensor, drawn: Tensor, entry: str) -> None:
    """Is a number of the entry, up to a factor and a constant, the sum of a pixel over the samples
    of a class? It changes with both labels and samples, as training does."""
    members = torch.stack([torch.nn.functional.one_hot(torch.tensor(y), CLASSES) for y in LABELS])
    pixels = drawn.reshape(DRAWS, SAMPLES, -1)
    sums = torch.einsum("lsc,dsp->ldcp", members.double(), pixels)
    counts = members.sum(1).clamp_min(1)[:, None, :, None]
    ours = _standard(table.reshape(len(LABELS) * DRAWS, -1))
    for secret in (sums, sums / counts):
        theirs = _standard(secret.reshape(len(LABELS) * DRAWS, -1))
        alike = (ours.T @ theirs).abs().amax(1) > 1 - EXACT
        if alike.any():
            place = int(alike.nonzero()[0])
            raise Found(
                f"what it uploads in {entry!r} (number {place}, of {int(alike.sum())}) is a sum or "
                "mean of its samples of a class"
            )


def _standard(x: Tensor) -> Tensor:
    """Columns of mean 0 and length 1; those that do not change are 0."""
    x = x - x.mean(0)
    length = x.norm(dim=0)
    return torch.where(length > 1e-9, x / length.clamp_min(1e-9), 0.0)


def _is_declared(method: AnyMethod, entry: str) -> None:
    if entry not in method.trained:
        raise Found(
            f"it uploads {entry!r}, which is none of what it trains "
            f"({', '.join(method.trained)}); say in `sends` what it is and why"
        )
