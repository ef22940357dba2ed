"""The networks by name. A net is features plus a classifier without bias, so that one row of the classifier is one class's proxy."""

from collections.abc import Callable

from fedmap.errors import FedmapError
from fedmap.nets.base import Net, seeded
from fedmap.nets.lenet import LeNet
from fedmap.nets.mlp import MLPNet
from fedmap.registry import Registry

NetMaker = Callable[[tuple[int, ...], int], Net]
NETS: Registry[NetMaker] = Registry("net")
NETS.add("mlp")(MLPNet)
NETS.add("lenet")(LeNet)

__all__ = ["NETS", "Net", "build"]


def build(name: str, shape: tuple[int, ...], classes: int, seed: int) -> Net:
    """A freshly initialised net for samples of this shape; the same seed gives the same weights."""
    maker = NETS[name]
    try:
        with seeded(seed):
            return maker(shape, classes)
    except (ValueError, RuntimeError) as wrong:
        raise FedmapError(f"net {name} cannot take samples of shape {shape}: {wrong}") from wrong
