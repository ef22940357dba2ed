"""A chain of convolution blocks, once in plain PyTorch and once as one autograd function around the
native library."""

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from fedmap.errors import FedmapError

LARGEST_KERNEL = 7


class Block(NamedTuple):
    """Convolution (square kernel, stride 1), ReLU, and a 2x2 max pool if `pool`."""

    weight: Tensor
    bias: Tensor | None
    padding: int
    pool: bool


class ChainPlan(NamedTuple):
    """What the library needs to know of a chain: seven numbers for each block, and the shape
    of one output. `wide`: registers of sixteen floats pay where the library has them."""

    shapes: ctypes.Array[ctypes.c_int32]
    blocks: int
    output: tuple[int, int, int]
    wide: bool


def plain(x: Tensor, blocks: Sequence[Block]) -> Tensor:
    """The reference. Pooling before ReLU gives the same values and gradients as after it, with a
    quarter of the work."""
    for weight, bias, padding, pool in blocks:
        x = F.conv2d(x, weight, bias, padding=padding)
        x = F.relu(F.max_pool2d(x, 2) if pool else x)
    return x


def plan(x: Tensor, blocks: Sequence[Block]) -> ChainPlan | None:
    """None where the shapes are not for the library."""
    if x.dim() != 4 or len(x) == 0 or not blocks:
        return None
    shapes = tuple(
        (b.weight.shape, None if b.bias is None else b.bias.shape, b.padding, b.pool)
        for b in blocks
    )
    return _plan(x.shape[1:], shapes)


@lru_cache(maxsize=256)
def _plan(
    image: torch.Size, blocks: tuple[tuple[torch.Size, torch.Size | None, int, bool], ...]
) -> ChainPlan | None:
    numbers: list[int] = []
    channels, height, width = image
    for weight, bias, padding, pool in blocks:
        if (
            len(weight) != 4
            or weight[1] != channels
            or weight[2] != weight[3]
            or not 1 <= weight[2] <= LARGEST_KERNEL
            or padding < 0
        ):
            return None
        outputs, kernel = weight[0], weight[2]
        if bias not in (None, (outputs,)):
            return None
        numbers += [channels, height, width, outputs, kernel, padding, int(pool)]
        height, width = (
            (n + 2 * padding - kernel + 1) // (2 if pool else 1) for n in (height, width)
        )
        channels = outputs
        if min(channels, height, width) < 1:
            return None
    shapes = (ctypes.c_int32 * len(numbers))(*numbers)
    wide = _wide([weight[0] for weight, *_ in blocks])
    return ChainPlan(shapes, len(blocks), (channels, height, width), wide)


def _wide(channels: Sequence[int]) -> bool:
    """Channels lie side by side in registers. LeNet's 6 and 16 fill two of sixteen floats as badly
    as three of eight; 32 and 64 fill half as many."""
    of_eight, of_sixteen = (sum(-(-n // lanes) for n in channels) for lanes in (8, 16))
    return of_sixteen <= 0.6 * of_eight


class Functions(NamedTuple):
    """The library's, for one width of registers."""

    memory: Any
    forward: Any
    backward: Any


@cache
def functions(library: ctypes.CDLL, wide: bool) -> Functions:
    """Those of the wide registers, where the library has them."""
    lanes = 16 if wide and library.fedmap_lanes() == 16 else 8
    return Functions(*(getattr(library, f"fedmap_{name}_{lanes}") for name in Functions._fields))


def native(library: ctypes.CDLL, plan: ChainPlan, x: Tensor, blocks: Sequence[Block]) -> Tensor:
    """The chain by the library, with gradients where they are asked for."""
    call = functions(library, plan.wide)
    parameters = [t for block in blocks for t in block[:2]]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *parameters)):
        how = [block[2:] for block in blocks]
        output: Tensor = NativeChain.apply(call, plan, how, x, *parameters)  # type: ignore[no-untyped-call]
        return output
    return _forward(call, plan, x, parameters, None, False)[0]


class NativeChain(Function):
    """Once differentiable: a gradient that is to be differentiated again is an error.

    The library leaves out gradients of zero. Where an operand is not finite PyTorch does the way
    back, so that zero times it is NaN and the divergence is seen."""

    @staticmethod
    def forward(
        ctx: Any,
        call: Functions,
        plan: ChainPlan,
        how: Sequence[tuple[int, bool]],
        x: Tensor,
        *parameters: Tensor | None,
    ) -> Tensor:
        kept = [None if t is None else t.contiguous() for t in parameters]
        input_gradient = ctx.needs_input_grad[3]
        memory = x.new_empty(call.memory(plan.shapes, plan.blocks, len(x), input_gradient))
        output, finite = _forward(call, plan, x, kept, memory, input_gradient)
        ctx.call, ctx.plan, ctx.how, ctx.image, ctx.finite = call, plan, how, x.shape, finite
        ctx.save_for_backward(*([memory, *kept[::2]] if finite else [x, *kept]))
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise FedmapError(
                "kernels = 'native' has no second derivatives (create_graph=True was asked for): "
                "choose torch"
            )
        wanted = ctx.needs_input_grad[3:]
        gradients = _native_gradients if ctx.finite else _plain_gradients
        return None, None, None, *gradients(ctx, gradient.contiguous(), wanted)


def _native_gradients(ctx: Any, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    memory, *weights = ctx.saved_tensors
    images = memory.new_empty(ctx.image) if wanted[0] else None
    dweights = [
        torch.empty_like(w) if want else None for w, want in zip(weights, wanted[1::2], strict=True)
    ]
    dbiases = [
        memory.new_empty(len(w)) if want else None
        for w, want in zip(weights, wanted[2::2], strict=True)
    ]
    ctx.call.backward(
        ctx.plan.shapes, ctx.plan.blocks, ctx.image[0],
        _pointers(weights), memory.data_ptr(), gradient.data_ptr(),
        _pointers(dweights), _pointers(dbiases), _pointer(images), wanted[0],
    )  # fmt: skip
    return [images, *(t for pair in zip(dweights, dbiases, strict=True) for t in pair)]


def _plain_gradients(ctx: Any, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    tensors: list[Any] = [
        None if t is None else t.detach().requires_grad_(want)
        for t, want in zip(ctx.saved_tensors, wanted, strict=True)
    ]
    x, weights, biases = tensors[0], tensors[1::2], tensors[2::2]
    blocks = [Block(w, b, *how) for w, b, how in zip(weights, biases, ctx.how, strict=True)]
    with torch.enable_grad():
        output = plain(x, blocks)
    leaves = [t for t, want in zip(tensors, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(output, leaves, gradient))
    return [next(found) if want else None for want in wanted]


def _forward(
    call: Functions,
    plan: ChainPlan,
    x: Tensor,
    parameters: Sequence[Tensor | None],
    memory: Tensor | None,
    input_gradient: bool,
) -> tuple[Tensor, bool]:
    """The output, and whether all weights and all blocks' inputs are finite (with `memory`)."""
    x = x.contiguous()
    # held until the call is over
    kept = [None if t is None else t.contiguous() for t in parameters]
    output = x.new_empty((len(x), *plan.output))
    finite = call.forward(
        plan.shapes, plan.blocks, len(x), x.data_ptr(),
        _pointers(kept[::2]), _pointers(kept[1::2]),
        output.data_ptr(), _pointer(memory), input_gradient,
    )  # fmt: skip
    return output, bool(finite)


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _pointers(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*map(_pointer, tensors))
