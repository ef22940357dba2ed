"""LeNet as LeCun et al. (1998) have it, with ReLU and max pooling, and the paper's change of it for
pictures of the feature space."""

from collections import OrderedDict
from typing import ClassVar

from torch import nn

from fedmap.nets.base import Net, image
from fedmap.nets.blocks import ConvBlock, ConvBlocks


class LeNet(Net):
    """The classic 6-16-120-84 convolutional net, for images of at least 16x16."""

    dim: ClassVar[int] = 84
    relu: ClassVar[bool] = True  # before the classifier

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        channels, height, width = image(shape, 16)
        blocks = ConvBlocks(channels, [ConvBlock(6, 5, 0, True), ConvBlock(16, 5, 0, True)])
        features = nn.Sequential(
            OrderedDict(
                blocks=blocks,
                flat=nn.Flatten(),
                hidden1=nn.Linear(blocks.dim(height, width), 120),
                relu1=nn.ReLU(),
                hidden2=nn.Linear(120, self.dim),
                relu2=nn.ReLU() if self.relu else nn.Identity(),
            )
        )
        super().__init__(features, self.dim, classes)


class LeNet2D(LeNet):
    """LeNet with a feature of 2 dimensions, which is a point in the plane (paper, Sect. 5.1.1)."""

    dim = 2
    relu = False


class LeNet2DReLU(LeNet):
    """LeNet with a feature of 2 dimensions and ReLU: a point in a quarter of the plane."""

    dim = 2
