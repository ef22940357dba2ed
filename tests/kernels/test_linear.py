"""The linear layer that adds its gradient straight to `grad`: the same numbers as `nn.Linear`, and an ordinary layer outside."""

import pytest
import torch
from torch import nn

from fedmap.kernels.linear import Linear, straight_gradients


def pair(bias: bool) -> tuple[nn.Linear, nn.Linear]:
    torch.manual_seed(0)
    plain, ours = nn.Linear(37, 11, bias=bias), Linear(37, 11, bias=bias)
    ours.load_state_dict(plain.state_dict())
    for layer in (plain, ours):
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)  # gradients add up, whatever is there
    return plain, ours


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("times", [1, 2])
def test_values_and_gradients_are_those_of_nn_linear_also_when_used_twice(bias: bool, times: int) -> None:
    plain, ours = pair(bias)
    x = torch.randn(19, 37)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    sum(plain(inputs[0]).square().sum() for _ in range(times)).backward()  # type: ignore[union-attr]
    with straight_gradients():
        sum(ours(inputs[1]).square().sum() for _ in range(times)).backward()  # type: ignore[union-attr]
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    for theirs, mine in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_outside_it_is_an_ordinary_layer_for_autograd_grad_and_second_derivatives() -> None:
    _, ours = pair(True)
    x = torch.randn(5, 37)
    (first,) = torch.autograd.grad(ours(x).square().sum(), [ours.weight], create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), [ours.weight])
    assert float(second.abs().sum()) > 0
    assert ours.weight.grad is not None
    assert bool((ours.weight.grad == 0.5).all())


def test_a_layer_without_gradients_yet_gets_them_from_autograd() -> None:
    layer = Linear(4, 3)
    with straight_gradients():
        layer(torch.ones(2, 4)).sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, torch.full((3, 4), 2.0))


def test_nothing_is_kept_of_a_teacher_that_needs_no_gradient() -> None:
    _, ours = pair(True)
    with straight_gradients(), torch.no_grad():
        assert not ours(torch.ones(2, 37)).requires_grad
