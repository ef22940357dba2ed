"""Chains of convolution, ReLU and max pool: the part of a net that most of the time goes into, kept
in one module so that it can be made fast in one place."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from fedmap.kernels import Block, conv_blocks


class ConvBlock(NamedTuple):
    """A convolution with stride 1 and bias, then ReLU, then a 2x2 max pool where `pool` says so."""

    outputs: int
    kernel: int
    padding: int
    pool: bool


class ConvBlocks(nn.ModuleList):
    """The convolutions of a chain of blocks; calling it runs the whole chain."""

    def __init__(self, channels: int, blocks: Sequence[ConvBlock]) -> None:
        inputs = [channels, *(block.outputs for block in blocks)]
        super().__init__(
            nn.Conv2d(n, b.outputs, b.kernel, padding=b.padding)
            for n, b in zip(inputs, blocks, strict=False)
        )
        self.plan = tuple(blocks)

    def forward(self, x: Tensor) -> Tensor:
        """What the last block makes of a batch of images."""
        layers = zip(cast(Iterable[nn.Conv2d], self), self.plan, strict=True)
        blocks = [Block(conv.weight, conv.bias, how.padding, how.pool) for conv, how in layers]
        return conv_blocks(x, blocks)

    def dim(self, height: int, width: int) -> int:
        """How many numbers come out for one image of this size."""
        for block in self.plan:
            height, width = (
                (n + 2 * block.padding - block.kernel + 1) // (2 if block.pool else 1)
                for n in (height, width)
            )
        return self.plan[-1].outputs * height * width


class ChannelsLast(nn.Module):
    """Images with the channels of a pixel side by side in memory, on which PyTorch's convolutions
    with batch norm are faster (a sixth for ResNet20). What follows keeps that order."""

    def forward(self, x: Tensor) -> Tensor:
        """The same images in the other order."""
        return x.contiguous(memory_format=torch.channels_last)
