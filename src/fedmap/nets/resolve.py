"""From what a user calls a net to what makes it: a registered name, code in a file of the user's
own, a module, or a function."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from fedmap import own_code
from fedmap.errors import FedmapError
from fedmap.nets.base import seeded
from fedmap.registry import Registry

# (shape of one sample, number of classes); what is not a Net goes through `adapt`
NetMaker = Callable[[tuple[int, ...], int], nn.Module]
AnyNet = str | nn.Module | NetMaker
NETS: Registry[NetMaker] = Registry("net")
ALLOWED = "module, nor a class or function that is called with (shape, classes) and gives one"


def find_net(net: AnyNet) -> NetMaker:
    """What makes the net of this name; `path/to/file.py:Class` is code in a file. A module is
    copied as it is, with its weights and with what is frozen in it."""
    if isinstance(net, str) and ":" not in net and not net.endswith(".py"):
        return NETS[net]
    found: nn.Module | NetMaker = (
        own_code.find("net", net, is_net, ALLOWED) if isinstance(net, str) else net
    )
    return _copies(found) if isinstance(found, nn.Module) else found


def net_name(net: object) -> str:
    """The name as a run keeps it: of a file the absolute path, of a module or function a mark."""
    if isinstance(net, str):
        own_code.refuse_mark("net", net)
        return own_code.full_name(net)
    if not is_net(net):
        raise FedmapError(f"net is {net!r}; it is no name, no FILE.py:CLASS, no {ALLOWED}")
    return own_code.mark(net, _content(net) if isinstance(net, nn.Module) else b"")


def made(net: AnyNet, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    """The module for samples of this shape; what it draws, comes from the seed. Whatever the user's
    own code raises is told."""
    maker, name = find_net(net), label(net)
    try:
        with seeded(seed):
            module = maker(shape, classes)
    except FedmapError:
        raise
    except Exception as wrong:
        if isinstance(net, str) and net in NETS:
            raise
        raise own_code.failed(
            f"net {name} fails when it is called with the shape {shape} and {classes} classes",
            wrong,
        ) from wrong
    if not isinstance(module, nn.Module):
        raise FedmapError(f"net {name} gives a {type(module).__name__}; an nn.Module is needed")
    return module


def label(net: AnyNet) -> str:
    """What a person calls it."""
    if isinstance(net, str):
        return own_code.short_name(net)
    return str(getattr(net, "__name__", type(net).__name__))


def is_net(thing: Any) -> bool:
    """Is it a module, or something that could make one?"""
    return isinstance(thing, nn.Module) or callable(thing)


def _copies(module: nn.Module) -> NetMaker:
    return lambda shape, classes: copy.deepcopy(module)


def _content(module: nn.Module) -> bytes:
    """Layers, weights, and what is frozen: all that the run begins with."""
    frozen = [name for name, weights in module.named_parameters() if not weights.requires_grad]
    parts = [f"{module}{frozen}".encode()]
    for tensor in module.state_dict().values():
        if isinstance(tensor, torch.Tensor):
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            parts.append(flat.view(torch.uint8).numpy().tobytes())
    return b"".join(parts)
