"""A linear layer whose weight gradient is added to the parameter's own `grad` by the matrix product itself. Autograd would first make it
in new memory and then add it: for a large layer two passes over memory that cost as much as a quarter of the product."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_straight = False


@contextmanager
def straight_gradients() -> Iterator[None]:
    """Inside, `backward` adds gradients of `Linear` layers straight to `grad`. Outside they are ordinary layers, so that
    `torch.autograd.grad`, second derivatives and hooks are as everywhere."""
    global _straight
    before, _straight = _straight, True
    try:
        yield
    finally:
        _straight = before


class Linear(nn.Linear):
    """`nn.Linear`, faster inside `straight_gradients`."""

    def forward(self, x: Tensor) -> Tensor:
        if _straight and torch.is_grad_enabled() and x.dim() == 2 and all(p.grad is not None for p in self.parameters()):
            y: Tensor = _Straight.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
            return y
        return F.linear(x, self.weight, self.bias)


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x)
        ctx.parameters = weight, bias
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, None]:
        (x,), (weight, bias), (grad,) = ctx.saved_tensors, ctx.parameters, grads
        weight.grad.addmm_(grad.t(), x)
        if bias is not None:
            bias.grad.add_(grad.sum(0))
        return (grad @ weight if ctx.needs_input_grad[0] else None), None, None
