"""Native CPU kernels for small convolutions and for products with many zeros, compiled on first
use, with plain PyTorch as the fallback and the reference.

What is in force is one setting of the process: PyTorch, until `use` says otherwise. Importing this
module builds nothing. The native chain is for reverse-mode gradients of first order; second
derivatives and `torch.func` transforms need `use("torch")`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import CDLL
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.kernels import chain
from fedmap.kernels.chain import Block

__all__ = ["Block", "add_product", "available", "conv_blocks", "use", "why_not"]

_in_force: CDLL | None = None


def conv_blocks(x: Tensor, blocks: Sequence[Block]) -> Tensor:
    """(N, C, H, W) through convolution, ReLU and 2x2 max pool of each block; (N, C', H', W') out."""
    if _in_force is not None and (plan := chain.plan(x, blocks)):
        return chain.native(_in_force, plan, x, blocks)
    return chain.plain(x, blocks)


def add_product(out: Tensor, a: Tensor, b: Tensor, background: float = 0.0) -> Tensor:
    """out += a @ b, for an `a` of which many entries are `background`: zero after a ReLU, black in
    images. Native code multiplies only the others."""
    if (
        _in_force is None
        or out.stride(1) != 1
        or any(t.dtype != torch.float32 or t.device.type != "cpu" for t in (out, a, b))
    ):
        return out.addmm_(a, b)
    (rows, columns), depth = out.shape, len(b)
    if a.shape != (rows, depth) or b.shape != (depth, columns):
        raise ValueError(
            f"matrices of {tuple(a.shape)} and {tuple(b.shape)} have no product of "
            f"{(rows, columns)}"
        )
    left, right = (a.data_ptr(), *a.stride()), (b.data_ptr(), *b.stride())
    _in_force.fedmap_add_product(
        rows, depth, columns, *left, background, *right, out.data_ptr(), out.stride(0)
    )
    return out


def use(choice: Literal["auto", "native", "torch"]) -> str:
    """Put `choice` in force for this process and say what it came to, "native" or "torch"."""
    global _in_force
    if choice not in ("auto", "native", "torch"):
        raise FedmapError(f"kernels = {choice!r} is unknown: choose auto, native or torch")
    if choice == "native" and not available():
        raise FedmapError(
            f"kernels = 'native', but there are none: {why_not()}. Choose auto or torch"
        )
    if choice == "auto" and not available():
        _say_once(
            "fedmap: no native kernels, PyTorch's are used (the same mathematics, slower): "
            f"{why_not()}"
        )
    loaded = None if choice == "torch" else _load()
    _in_force = loaded if isinstance(loaded, CDLL) else None
    return "torch" if _in_force is None else "native"


def resolve(choice: Literal["auto", "native", "torch"]) -> Literal["native", "torch"]:
    """What a choice comes to on this machine; nothing is put in force."""
    before = _in_force
    try:
        return "native" if use(choice) == "native" else "torch"
    finally:
        globals()["_in_force"] = before


@contextmanager
def in_force(choice: Literal["auto", "native", "torch"]) -> Iterator[None]:
    """Inside, these kernels are used by this process."""
    before = _in_force
    use(choice)
    try:
        yield
    finally:
        globals()["_in_force"] = before


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
