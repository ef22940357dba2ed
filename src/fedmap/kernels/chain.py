"""A chain of convolution blocks, once in plain PyTorch and once as one autograd function around the
native library."""

import ctypes
from collections.abc import Sequence
from functools import lru_cache
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


class Plan(NamedTuple):
    """What the library needs to know of a chain: seven numbers a block, and the shape of one
    output."""

    shapes: ctypes.Array[ctypes.c_int32]
    blocks: int
    output: tuple[int, int, int]


def plain(x: Tensor, blocks: Sequence[Block]) -> Tensor:
    """The reference. Pooling before ReLU gives the same values and gradients as after it, with a
    quarter of the work."""
    for weight, bias, padding, pool in blocks:
        x = F.conv2d(x, weight, bias, padding=padding)
        x = F.relu(F.max_pool2d(x, 2) if pool else x)
    return x


def plan(x: Tensor, blocks: Sequence[Block]) -> Plan | None:
    """None where the library does not take it: not 32-bit floats in main memory, or shapes that do
    not fit."""
    tensors = [x, *(t for block in blocks for t in block[:2] if t is not None)]
    if (
        x.dim() != 4
        or len(x) == 0
        or not blocks
        or any(t.dtype != torch.float32 or t.device.type != "cpu" for t in tensors)
    ):
        return None
    return _plan(
        x.shape[1:],
        tuple(
            (b.weight.shape, None if b.bias is None else b.bias.shape, b.padding, b.pool)
            for b in blocks
        ),
    )


@lru_cache(maxsize=256)
def _plan(
    image: torch.Size, blocks: tuple[tuple[torch.Size, torch.Size | None, int, bool], ...]
) -> Plan | None:
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
    return Plan((ctypes.c_int32 * len(numbers))(*numbers), len(blocks), (channels, height, width))


def native(library: ctypes.CDLL, plan: Plan, x: Tensor, blocks: Sequence[Block]) -> Tensor:
    parameters = [t for block in blocks for t in block[:2]]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, *parameters)):
        output: Tensor = NativeChain.apply(library, plan, x, *parameters)  # type: ignore[no-untyped-call]
        return output
    return _forward(library, plan, x, parameters, None, False)


class NativeChain(Function):
    """Once differentiable: a gradient that is to be differentiated again is an error."""

    @staticmethod
    def forward(
        ctx: Any, library: ctypes.CDLL, plan: Plan, x: Tensor, *parameters: Tensor | None
    ) -> Tensor:
        kept = [None if t is None else t.contiguous() for t in parameters]
        input_gradient = ctx.needs_input_grad[2]
        memory = x.new_empty(
            library.fedmap_memory(plan.shapes, plan.blocks, len(x), input_gradient)
        )
        ctx.library, ctx.plan, ctx.image = library, plan, x.shape
        ctx.save_for_backward(memory, *kept[::2])
        return _forward(library, plan, x, kept, memory, input_gradient)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise FedmapError(
                "kernels = 'native' has no second derivatives (create_graph=True was asked for): "
                "choose torch"
            )
        memory, *weights = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        gradient = gradient.contiguous()
        images = memory.new_empty(ctx.image) if wanted[2] else None
        dweights = [
            torch.empty_like(w) if want else None
            for w, want in zip(weights, wanted[3::2], strict=True)
        ]
        dbiases = [
            memory.new_empty(len(w)) if want else None
            for w, want in zip(weights, wanted[4::2], strict=True)
        ]
        ctx.library.fedmap_backward(
            ctx.plan.shapes, ctx.plan.blocks, ctx.image[0], _pointers(weights), memory.data_ptr(), gradient.data_ptr(),
            _pointers(dweights), _pointers(dbiases), _pointer(images), wanted[2],
        )  # fmt: skip
        return (
            None,
            None,
            images,
            *(t for pair in zip(dweights, dbiases, strict=True) for t in pair),
        )


def _forward(
    library: ctypes.CDLL,
    plan: Plan,
    x: Tensor,
    parameters: Sequence[Tensor | None],
    memory: Tensor | None,
    input_gradient: bool,
) -> Tensor:
    x = x.contiguous()
    # held until the call is over
    kept = [None if t is None else t.contiguous() for t in parameters]
    output = x.new_empty((len(x), *plan.output))
    library.fedmap_forward(
        plan.shapes, plan.blocks, len(x), x.data_ptr(), _pointers(kept[::2]), _pointers(kept[1::2]),
        output.data_ptr(), _pointer(memory), input_gradient,
    )  # fmt: skip
    return output


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _pointers(tensors: Sequence[Tensor | None]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*map(_pointer, tensors))
