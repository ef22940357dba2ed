"""MLPNet: two hidden layers of 512 (paper, Sect. 5.2.1)."""

import math

from torch import nn

from fedmap.kernels.linear import Layers
from fedmap.nets.base import Net


class MLPNet(Net):
    """Two hidden layers of 512 with ReLU, for images and vectors of any size."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        features = Layers(
            nn.Flatten(),
            nn.Linear(math.prod(shape), 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
        )
        super().__init__(features, 512, classes)
