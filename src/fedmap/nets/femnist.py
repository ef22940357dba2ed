"""The net for FEMNIST: two convolutions and the classifier (paper, Sect. 5.3)."""

from collections import OrderedDict

from torch import nn

from fedmap.nets.base import Net, image
from fedmap.nets.blocks import ConvBlock, ConvBlocks


class FEMNISTNet(Net):
    """Two 5x5 convolutions of 32 and 64 channels, averaged to 4x4, for images of at least 8x8."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        channels, _, _ = image(shape, 8)
        blocks = ConvBlocks(channels, [ConvBlock(32, 5, 2, True), ConvBlock(64, 5, 2, False)])
        features = nn.Sequential(
            OrderedDict(blocks=blocks, average=nn.AdaptiveAvgPool2d(4), flat=nn.Flatten())
        )
        super().__init__(features, 64 * 4 * 4, classes)
