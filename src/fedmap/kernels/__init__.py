"""Native CPU kernels for small convolutions and for products with many zeros, compiled on first
use, with plain PyTorch as the fallback and the reference.

Which of the two is in force is one setting of the process: PyTorch, until `in_force` says
otherwise. Importing this module builds nothing. The native chain is for reverse-mode gradients of
first order; second derivatives and `torch.func` transforms need PyTorch's. While PyTorch traces,
compiles or exports a net, native kernels step aside."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import CDLL
from functools import cache
from typing import Literal

import torch
from torch import Tensor, nn

from fedmap.errors import FedmapError
from fedmap.kernels import chain
from fedmap.kernels.chain import Block

__all__ = [
    "Block", "Choice", "Kind", "add_product", "available", "conv_blocks", "in_force", "resolve",
    "takes", "why_not",
]  # fmt: skip

Choice = Literal["auto", "native", "torch"]
Kind = Literal["native", "torch"]

_library: CDLL | None = None  # the native library where it is in force


def conv_blocks(x: Tensor, blocks: Sequence[Block]) -> Tensor:
    """(N, C, H, W) through convolution, ReLU and 2x2 max pool of each block: (N, C', H', W')."""
    if _library is not None and takes(x, *(t for block in blocks for t in block[:2])):
        plan = chain.plan(x, blocks)
        if plan is not None:
            return chain.native(_library, plan, x, blocks)
    return chain.plain(x, blocks)


def add_product(out: Tensor, a: Tensor, b: Tensor, background: float = 0.0) -> Tensor:
    """out += a @ b, for an `a` of which many entries are `background`: zero after a ReLU, black in
    images. Native code multiplies only the others, unless what they meet in `b` is not finite."""
    if (
        _library is None
        or not takes(out, a, b)
        or out.stride(1) != 1
        or not math.isfinite(background)
    ):
        return out.addmm_(a, b)
    (rows, columns), depth = out.shape, len(b)
    if a.shape != (rows, depth) or b.shape != (depth, columns):
        raise ValueError(
            f"matrices of {tuple(a.shape)} and {tuple(b.shape)} have no product of "
            f"{(rows, columns)}"
        )
    left, right = (a.data_ptr(), *a.stride()), (b.data_ptr(), *b.stride())
    _library.fedmap_add_product(
        rows, depth, columns, *left, background, *right, out.data_ptr(), out.stride(0)
    )
    return out


def takes(*tensors: Tensor | None) -> bool:
    """Whether native kernels are in force and can read these tensors: 32-bit floats in main memory
    that hold real numbers, not the stand-ins of a tracer."""
    return (
        _library is not None
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and all(t is None or _plain_floats(t) for t in tensors)
    )


def _plain_floats(t: Tensor) -> bool:
    return t.is_cpu and t.dtype == torch.float32 and type(t) in (Tensor, nn.Parameter)


def resolve(choice: Choice) -> Kind:
    """What a choice comes to on this machine; the native kernels are built if need be, and nothing
    is put in force. `auto` without native kernels is PyTorch, and says so once."""
    if choice not in ("auto", "native", "torch"):
        raise FedmapError(f"kernels = {choice!r} is unknown: choose auto, native or torch")
    if choice == "torch":
        return "torch"
    if available():
        return "native"
    if choice == "native":
        raise FedmapError(
            f"kernels = 'native', but there are none: {why_not()}. Choose auto or torch"
        )
    _say_once(
        f"fedmap: no native kernels, PyTorch's are used (the same mathematics, slower): {why_not()}"
    )
    return "torch"


@contextmanager
def in_force(choice: Choice) -> Iterator[None]:
    """Inside, this process uses the kernels that the choice comes to; afterwards those that it used
    before."""
    global _library
    before = _library
    _library = _load()[0] if resolve(choice) == "native" else None
    try:
        yield
    finally:
        _library = before


def available() -> bool:
    """Whether the native kernels can be used here; the first call builds and loads them."""
    return _load()[0] is not None


def why_not() -> str:
    """Why they cannot, or nothing if they can."""
    return _load()[1]


@cache
def _load() -> tuple[CDLL | None, str]:
    """The library, or the reason why there is none."""
    from fedmap.kernels import build

    try:
        return build.load(), ""
    except build.UnavailableError as reason:
        return None, str(reason)


@cache
def _say_once(line: str) -> None:
    print(line, file=sys.stderr)
