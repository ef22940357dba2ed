"""The networks by name. A net is features plus a classifier without bias, so that one row of the
classifier is one class's proxy."""

import torch

from fedmap import own_code
from fedmap.errors import FedmapError
from fedmap.nets.adapt import adapt
from fedmap.nets.base import Net, draw_linear, seeded
from fedmap.nets.femnist import FEMNISTNet
from fedmap.nets.lenet import LeNet, LeNet2D, LeNet2DReLU
from fedmap.nets.mlp import MLPNet
from fedmap.nets.resnet import ResNet20, ResNet56
from fedmap.nets.resolve import NETS, AnyNet, NetMaker, find_net, label, made, net_name
from fedmap.nets.tfcnn import TFCNN
from fedmap.nets.vgg import VGG8, VGG8BN, VGG11, VGG11BN, VGG16BN
from fedmap.registry import headline

__all__ = ["NETS", "AnyNet", "Net", "adapt", "build", "find_net", "line", "net_name", "size"]

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
    net: AnyNet,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    linear_deviation: float | None = None,
) -> Net:
    """A net for samples of this shape: freshly initialized, the same seed gives the same weights;
    or, where it is a module, with the weights that it has. With `linear_deviation` linear layers
    are drawn from N(0, linear_deviation^2)."""
    try:
        module = made(net, shape, classes, seed)
        found = module if isinstance(module, Net) else adapt(module, shape, classes)
        if linear_deviation is not None:
            with seeded(seed):
                draw_linear(found, linear_deviation)
        return found
    except (ValueError, RuntimeError) as wrong:
        raise FedmapError(
            f"net {label(net)} cannot take samples of shape {shape}: {wrong}"
        ) from wrong
    except AssertionError as wrong:  # torch's, where a net asks for a device that is not there
        raise own_code.failed(
            f"net {label(net)} fails on samples of shape {shape}", wrong
        ) from wrong


def line(name: str) -> str:
    """What a net is, in one line."""
    return headline(NETS[name])


def size(net: AnyNet, shape: tuple[int, ...], classes: int) -> int | None:
    """How many parameters a net has for samples of this shape, without making them; None where it
    does not take such samples."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in made(net, shape, classes).parameters())
    except (ValueError, RuntimeError, FedmapError):
        return None
