"""VGG (Simonyan and Zisserman, 2015) for small images: five stages of 3x3 convolutions, and the
classifier right behind them."""

from collections import OrderedDict
from typing import ClassVar

from torch import nn

from fedmap.nets.base import Net, image
from fedmap.nets.blocks import ChannelsLast, ConvBlock, ConvBlocks

WIDTHS = (64, 128, 256, 512, 512)  # channels of the five stages; each ends in a max pool


class VGG(Net):
    """Five stages of 3x3 convolutions without the original's hidden linear layers, for images of at
    least 32x32."""

    depths: ClassVar[tuple[int, ...]]  # convolutions of each stage
    batch_norm: ClassVar[bool] = False

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        channels, height, width = image(shape, 32)
        stages = zip(WIDTHS, self.depths, strict=True)
        plan = [
            ConvBlock(outputs, 3, 1, pool=i == depth)
            for outputs, depth in stages
            for i in range(1, depth + 1)
        ]
        blocks = batch_normed(channels, plan) if self.batch_norm else ConvBlocks(channels, plan)
        features = nn.Sequential(OrderedDict(blocks=blocks, flat=nn.Flatten()))
        super().__init__(features, WIDTHS[-1] * (height // 32) * (width // 32), classes)


def batch_normed(channels: int, plan: list[ConvBlock]) -> nn.Sequential:
    """The chain of `ConvBlocks` with batch norm after every convolution, which keeps its bias."""
    layers = OrderedDict[str, nn.Module](layout=ChannelsLast())
    for i, block in enumerate(plan):
        layers[f"conv{i}"] = nn.Conv2d(channels, block.outputs, block.kernel, padding=block.padding)
        layers[f"norm{i}"] = nn.BatchNorm2d(block.outputs)
        layers[f"relu{i}"] = nn.ReLU()
        if block.pool:
            layers[f"pool{i}"] = nn.MaxPool2d(2)
        channels = block.outputs
    return nn.Sequential(layers)


class VGG8(VGG):
    """VGG with 5 convolutions, for images of at least 32x32."""

    depths = (1, 1, 1, 1, 1)


class VGG8BN(VGG8):
    """VGG with 5 convolutions and batch norm, for images of at least 32x32."""

    batch_norm = True


class VGG11(VGG):
    """VGG with 8 convolutions, for images of at least 32x32."""

    depths = (1, 1, 2, 2, 2)


class VGG11BN(VGG11):
    """VGG with 8 convolutions and batch norm, for images of at least 32x32."""

    batch_norm = True


class VGG16BN(VGG):
    """VGG with 13 convolutions and batch norm, for images of at least 32x32."""

    depths = (2, 2, 3, 3, 3)
    batch_norm = True
