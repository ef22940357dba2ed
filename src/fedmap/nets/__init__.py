"""The networks by name. A net is features plus a classifier without bias, so that one row of the
classifier is one class's proxy."""

from collections.abc import Callable

import torch
from torch import nn

from fedmap.errors import FedmapError
from fedmap.nets.adapt import adapt
from fedmap.nets.base import Net, draw_linear, seeded
from fedmap.nets.femnist import FEMNISTNet
from fedmap.nets.lenet import LeNet, LeNet2D, LeNet2DReLU
from fedmap.nets.mlp import MLPNet
from fedmap.nets.resnet import ResNet20, ResNet56
from fedmap.nets.tfcnn import TFCNN
from fedmap.nets.vgg import VGG8, VGG8BN, VGG11, VGG11BN, VGG16BN
from fedmap.registry import Registry, headline

__all__ = ["NETS", "Net", "adapt", "build", "line", "size"]

# (shape of one sample, number of classes); what is not a Net goes through `adapt`
NetMaker = Callable[[tuple[int, ...], int], nn.Module]
NETS: Registry[NetMaker] = Registry("net")
PAPER: dict[str, NetMaker] = {
    "mlp": MLPNet,
    "lenet": LeNet,
    "lenet-2d": LeNet2D,
    "lenet-2d-relu": LeNet2DReLU,
    "tfcnn": TFCNN,
    "vgg8": VGG8,
    "vgg8-bn": VGG8BN,
    "vgg11": VGG11,
    "vgg11-bn": VGG11BN,
    "vgg16-bn": VGG16BN,
    "resnet20": ResNet20,
    "resnet56": ResNet56,
    "femnist": FEMNISTNet,
}
for name, maker in PAPER.items():
    NETS.add(name)(maker)


def build(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    linear_deviation: float | None = None,
) -> Net:
    """A freshly initialized net for samples of this shape; the same seed gives the same weights.
    Linear layers are drawn from N(0, linear_deviation^2), or as PyTorch does."""
    maker = NETS[name]
    try:
        with seeded(seed):
            made = maker(shape, classes)
            net = made if isinstance(made, Net) else adapt(made, shape, classes)
            if linear_deviation is not None:
                draw_linear(net, linear_deviation)
            return net
    except (ValueError, RuntimeError) as wrong:
        raise FedmapError(f"net {name} cannot take samples of shape {shape}: {wrong}") from wrong


def line(name: str) -> str:
    """What a net is, in one line."""
    return headline(NETS[name])


def size(name: str, shape: tuple[int, ...], classes: int) -> int | None:
    """How many parameters a net has for samples of this shape, without making them; None where it
    does not take such samples."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in NETS[name](shape, classes).parameters())
    except (ValueError, RuntimeError, FedmapError):
        return None
