"""LeNet as LeCun et al. (1998) have it, with ReLU and max pooling."""

from torch import nn

from fedmap.nets.base import Net


class LeNet(Net):
    """The classic 6-16-120-84 convolutional net, for images from 32x32 on (28x28 works too)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        if len(shape) != 3 or min(shape[1:]) < 16:
            raise ValueError("it needs images of at least 16x16")
        channels, height, width = shape
        side = [((n - 4) // 2 - 4) // 2 for n in (height, width)]
        features = nn.Sequential(
            nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * side[0] * side[1], 120), nn.ReLU(),
            nn.Linear(120, 84), nn.ReLU(),
        )  # fmt: skip
        super().__init__(features, 84, classes)
