"""ResNet for small images (He et al., 2016, Sect. 4.2): three stages of n residual blocks, 6n + 2
layers."""

from collections import OrderedDict
from itertools import pairwise
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from fedmap.nets.base import Net, image
from fedmap.nets.blocks import ChannelsLast

WIDTHS = (16, 32, 64)  # channels of the three stages; the second and the third begin with stride 2


class Residual(nn.Module):
    """Two 3x3 convolutions with batch norm, beside a shortcut: a projection where the shape
    changes, nothing elsewhere."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if inputs != outputs:
            self.shortcut = nn.Sequential(
                OrderedDict(
                    conv=nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                    norm=nn.BatchNorm2d(outputs),
                )
            )

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both ways, through a ReLU."""
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


def stage(inputs: int, outputs: int, depth: int) -> nn.Sequential:
    """Residual blocks of one width; the first one halves the image where the width grows."""
    first = Residual(inputs, outputs, stride=1 if inputs == outputs else 2)
    return nn.Sequential(first, *(Residual(outputs, outputs, stride=1) for _ in range(depth - 1)))


class ResNet(Net):
    """Three stages of residual blocks with 16, 32 and 64 channels, averaged over the image, for
    images of at least 8x8."""

    depth: ClassVar[int]  # residual blocks of each stage

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        channels, _, _ = image(shape, 8)
        first = nn.Conv2d(channels, WIDTHS[0], 3, padding=1, bias=False)
        features = OrderedDict[str, nn.Module](
            layout=ChannelsLast(), conv=first, norm=nn.BatchNorm2d(WIDTHS[0]), relu=nn.ReLU()
        )
        for i, (inputs, outputs) in enumerate(pairwise((WIDTHS[0], *WIDTHS)), start=1):
            features[f"stage{i}"] = stage(inputs, outputs, self.depth)
        features |= {"average": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
        super().__init__(nn.Sequential(features), WIDTHS[-1], classes)


class ResNet20(ResNet):
    """ResNet with 20 layers in stages of 16, 32 and 64 channels, for images of at least 8x8."""

    depth = 3


class ResNet56(ResNet):
    """ResNet with 56 layers in stages of 16, 32 and 64 channels, for images of at least 8x8."""

    depth = 9
