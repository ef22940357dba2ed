"""The nets and the federation that a method is checked on."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from torch import nn

from fedmap.federation import Federation
from fedmap.nets import Net
from fedmap.random import generator

SHAPE, CLASSES, ROUNDS = (1, 6, 6), 4, 2
# labels of each client: all miss classes, the second has only one
HELD = [(0, 2) * 5, (1,) * 8, (0, 2, 3) * 4, (1, 2)]


def plain(shape: tuple[int, ...], classes: int) -> Net:
    """One hidden layer, with dropout: what it draws must follow from the seed too."""
    layers = (nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Dropout(0.2))
    return Net(nn.Sequential(*layers), 8, classes)


def batch_norm(shape: tuple[int, ...], classes: int) -> Net:
    """Batch norm of both kinds: with a moving average, and with a mean that counts its batches."""
    norms = nn.BatchNorm2d(4), nn.BatchNorm2d(4, momentum=None)
    first = nn.Conv2d(1, 4, 3, stride=2)
    return Net(nn.Sequential(first, norms[0], nn.ReLU(), norms[1], nn.Flatten()), 16, classes)


@cache
def federation() -> Federation:
    """Four tiny clients with few samples, and a global test set of all classes."""
    rng = generator(0, "check")
    centers = rng.standard_normal((CLASSES, *SHAPE), np.float32)

    def samples(labels: Sequence[int]) -> tuple[Any, Any]:
        y = np.array(labels)
        return centers[y] + 0.3 * rng.standard_normal((len(y), *SHAPE), np.float32), y

    return Federation.from_arrays([samples(labels) for labels in HELD], samples(range(CLASSES)))
