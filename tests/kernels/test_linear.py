"""Linear layers that add their gradients straight to `grad`: the same numbers as `nn.Sequential`,
and ordinary layers outside."""

import copy

import pytest
import torch
from torch import Tensor, nn

from fedmap.kernels import linear
from fedmap.kernels.linear import Layers, straight_gradients


@pytest.fixture(params=["torch", "native"])
def choice(request: pytest.FixtureRequest) -> None:
    if request.param == "native":
        request.getfixturevalue("native")


def layers(*, bias: bool = True) -> tuple[nn.Module, ...]:
    torch.manual_seed(0)
    return (
        nn.Flatten(),
        nn.Linear(36, 20),
        nn.ReLU(),
        nn.Linear(20, 11, bias=bias),
        nn.ReLU(),
        nn.Linear(11, 3),
    )


def pair(*, bias: bool = True) -> tuple[nn.Sequential, Layers]:
    plain = nn.Sequential(*layers(bias=bias))
    ours = Layers(*copy.deepcopy(list(plain)))
    for net in (plain, ours):
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, 0.5)  # gradients add up, whatever is there
    return plain, ours


def first_weight(net: nn.Sequential) -> Tensor:
    layer = net[1]
    assert isinstance(layer, nn.Linear)
    return layer.weight


def assert_same_gradients(plain: nn.Module, ours: nn.Module) -> None:
    for expected, found in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many parameters each run of layers had, filled while one works."""
    seen: list[int] = []
    apply = linear._Run.apply

    def counted(x: Tensor, *parameters: nn.Parameter) -> Tensor:
        seen.append(len(parameters))
        out: Tensor = apply(x, *parameters)
        return out

    monkeypatch.setattr(linear._Run, "apply", counted)
    return seen


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("black", [False, True])  # images with a background
# a layer without bias is left to autograd
@pytest.mark.parametrize(("bias", "expected"), [(True, [4]), (False, [2])])
@pytest.mark.parametrize("times", [1, 2])
def test_values_and_gradients_are_those_of_sequential_also_when_used_twice(
    bias: bool, expected: list[int], times: int, black: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plain, ours), seen = pair(bias=bias), runs(monkeypatch)
    x = torch.randn(19, 4, 9)
    if black:
        x[:, :, :5] = -1
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    sum(plain(inputs[0]).square().sum() for _ in range(times)).backward()
    with straight_gradients():
        sum(ours(inputs[1]).square().sum() for _ in range(times)).backward()
    assert seen == expected * times
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    assert_same_gradients(plain, ours)


def test_the_weights_get_their_gradients_where_the_input_has_none() -> None:
    plain, ours = pair()
    x = torch.randn(5, 36)
    plain(x).sum().backward()
    with straight_gradients():
        ours(x).sum().backward()
    assert_same_gradients(plain, ours)


def test_outside_they_are_ordinary_layers_for_autograd_grad_and_second_derivatives() -> None:
    _, ours = pair()
    weight = first_weight(ours)
    (first,) = torch.autograd.grad(
        ours(torch.randn(5, 36)).square().sum(), [weight], create_graph=True
    )
    (second,) = torch.autograd.grad(first.square().sum(), [weight])
    assert float(second.abs().sum()) > 0
    assert weight.grad is not None
    assert bool((weight.grad == 0.5).all())


def test_layers_without_gradients_yet_get_them_from_autograd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, seen = Layers(*layers()), runs(monkeypatch)
    with straight_gradients():
        net(torch.ones(2, 36)).sum().backward()
    assert seen == []
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("black", [False, True])
def test_values_without_gradient_are_those_of_sequential(black: bool) -> None:
    plain, ours = pair()
    x = torch.randn(5, 36)
    if black:
        x[:, :20] = -1
    with torch.no_grad():
        torch.testing.assert_close(ours(x), plain(x))


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("gradient", [False, True])
def test_a_single_sample_leaves_the_parameters_as_they_are(gradient: bool) -> None:
    plain, ours = pair()
    x = torch.full((1, 36), -1.0)
    with straight_gradients(), torch.set_grad_enabled(gradient):
        torch.testing.assert_close(ours(x), plain(x))
        if gradient:
            ours(x).sum().backward()
    for expected, found in zip(plain.parameters(), ours.parameters(), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("choice")
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_seen_behind_an_input_of_zero(poison: float) -> None:
    _, ours = pair()
    with torch.no_grad():
        first_weight(ours)[3, 7] = poison
        assert not ours(torch.zeros(5, 36)).isfinite().any()


@pytest.mark.usefixtures("choice")
def test_a_weight_that_is_not_finite_is_seen_behind_a_gradient_of_zero() -> None:
    """The ReLU cuts an output of minus infinity: forward nothing shows, backward zero times it."""
    plain, ours = pair()
    x = torch.rand(5, 36) + 0.1
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    with torch.no_grad():
        for net in (plain, ours):
            first_weight(net)[3, 7] = -torch.inf
    plain(inputs[0]).sum().backward()
    with straight_gradients():
        ours(inputs[1]).sum().backward()
    assert inputs[0].grad is not None
    assert inputs[1].grad is not None
    assert bool(inputs[0].grad[:, 7].isnan().all())
    assert torch.equal(inputs[0].grad.isnan(), inputs[1].grad.isnan())


def test_nothing_is_kept_of_a_teacher_that_needs_no_gradient() -> None:
    _, ours = pair()
    with straight_gradients(), torch.no_grad():
        assert not ours(torch.ones(2, 36)).requires_grad
