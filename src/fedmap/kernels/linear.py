"""Linear layers and ReLUs whose gradients go the shortest way: a run of them is one step of
autograd, and the gradients of its weights are added to the parameters' own `grad` by the matrix
product itself. Autograd would make each in new memory first and then add it: for large layers two
passes over memory that cost as much as a quarter of the product. For small ones autograd's own
nodes are as fast. Native products leave out what a ReLU has set to zero, about half of all, forward
and backward."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from fedmap.kernels import add_product, takes

_straight = False


@contextmanager
def straight_gradients() -> Iterator[None]:
    """Inside, `backward` adds gradients straight to `grad`. Outside all is as everywhere, for
    `torch.autograd.grad`, second derivatives and hooks."""
    global _straight
    before, _straight = _straight, True
    try:
        yield
    finally:
        _straight = before


class Layers(nn.Sequential):
    """`nn.Sequential`, in which a run of linear layers, each with its ReLU, is faster inside
    `straight_gradients` and without gradient."""

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not _straight:
            out: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return out
        layers = list(self)
        while layers:
            if run := _leading_run(layers):
                x = _Run.apply(x, *run) if torch.is_grad_enabled() else _values(x, run)[-1]  # type: ignore[no-untyped-call]
                del layers[: len(run)]
            else:
                x = layers.pop(0)(x)
        return x


def _leading_run(layers: list[nn.Module]) -> list[Tensor]:
    """Weight and bias of each (linear layer, ReLU) that the layers begin with."""
    run: list[Tensor] = []
    for linear, relu in zip(layers[::2], layers[1::2], strict=False):
        if (
            type(linear) is not nn.Linear
            or type(relu) is not nn.ReLU
            or linear.bias is None
            or linear.weight.grad is None
        ):
            break
        run += [linear.weight, linear.bias]
    return run


def _values(x: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """The input and what each layer makes of it."""
    values, background = [x], _background(x)
    for weight, bias in zip(parameters[::2], parameters[1::2], strict=True):
        if background is None:
            values.append(F.linear(values[-1], weight, bias).relu_())
        else:
            sums = x.new_empty(len(x), len(bias)).copy_(bias)
            values.append(add_product(sums, values[-1], weight.t(), background).relu_())
        background = 0.0 if takes(x) else None
    return values


def _background(x: Tensor) -> float | None:
    """What many entries are, going by the first samples and their corner: images often show a thing
    on black. Only native products ask for it."""
    if not takes(x) or x.numel() == 0:
        return None
    some = x[:8].detach()
    corner = some[0, 0]
    return float(corner) if int((some == corner).sum()) > some.numel() // 3 else None


class _Run(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.parameters = parameters
        values = _values(x, parameters)
        ctx.save_for_backward(*values)
        return values[-1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, parameters, (grad,) = ctx.saved_tensors, ctx.parameters, grads
        layers = list(zip(values, parameters[::2], parameters[1::2], values[1:], strict=False))
        for x, weight, bias, y in reversed(layers):
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
            add_product(weight.grad, grad.t(), x)
            bias.grad.add_(grad.sum(0))
            if x is not values[0] or ctx.needs_input_grad[0]:
                grad = add_product(torch.zeros_like(x), grad, weight)
        return (grad if ctx.needs_input_grad[0] else None), *[None] * len(parameters)
