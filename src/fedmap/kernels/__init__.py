"""Native CPU kernels for small convolutions, compiled on first use, with plain PyTorch as the fallback and the reference.

What is in force is one setting of the process: PyTorch, until `use` says otherwise. Importing this module builds nothing.
The native chain is for reverse-mode gradients of first order; second derivatives and `torch.func` transforms need `use("torch")`."""

import sys
from collections.abc import Sequence
from ctypes import CDLL
from functools import cache
from typing import Literal

from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.kernels import chain
from fedmap.kernels.chain import Block

__all__ = ["Block", "available", "conv_blocks", "use", "why_not"]

_in_force: CDLL | None = None


def conv_blocks(x: Tensor, blocks: Sequence[Block]) -> Tensor:
    """(N, C, H, W) through convolution, ReLU and 2x2 max pool of each block; (N, C', H', W') out."""
    if _in_force is not None and (plan := chain.plan(x, blocks)):
        return chain.native(_in_force, plan, x, blocks)
    return chain.plain(x, blocks)


def use(choice: Literal["auto", "native", "torch"]) -> str:
    """Put `choice` in force for this process and say what it came to, "native" or "torch"."""
    global _in_force
    if choice not in ("auto", "native", "torch"):
        raise FedmapError(f"kernels = {choice!r} is unknown: choose auto, native or torch")
    if choice == "native" and not available():
        raise FedmapError(f"kernels = 'native', but there are none: {why_not()}. Choose auto or torch")
    if choice == "auto" and not available():
        _say_once(f"fedmap: no native kernels, PyTorch's are used (the same mathematics, slower): {why_not()}")
    loaded = None if choice == "torch" else _load()
    _in_force = loaded if isinstance(loaded, CDLL) else None
    return "torch" if _in_force is None else "native"


def available() -> bool:
    """Whether the native kernels can be used here; the first call builds and loads them."""
    return isinstance(_load(), CDLL)


def why_not() -> str:
    """Why they cannot, or nothing if they can."""
    loaded = _load()
    return "" if isinstance(loaded, CDLL) else loaded


@cache
def _load() -> CDLL | str:
    from fedmap.kernels import build

    try:
        return build.load()
    except build.UnavailableError as reason:
        return str(reason)


@cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)
