"""TFCNN: the small net for CIFAR-10 that the paper names after FedAvg's."""

from collections import OrderedDict

from torch import nn

from fedmap.nets.base import Net, image
from fedmap.nets.blocks import ConvBlock, ConvBlocks


class TFCNN(Net):
    """Three 3x3 convolutions of 32, 64 and 64 channels with pools, for images of at least 8x8."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        channels, height, width = image(shape, 8)
        blocks = ConvBlocks(channels, [ConvBlock(outputs, 3, 1, True) for outputs in (32, 64, 64)])
        features = nn.Sequential(OrderedDict(blocks=blocks, flat=nn.Flatten()))
        super().__init__(features, blocks.dim(height, width), classes)
