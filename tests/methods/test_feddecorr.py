"""FedDecorr and FedMR: what correlated features cost, in the batch and within its classes."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.methods.conftest import World, assert_gradient
from torch import Tensor

from fedmap import FedmapError, check_method
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.feddecorr import FedDecorr, correlation

Y = torch.tensor([0, 2, 0, 1, 2, 0, 2, 2])  # a single sample of class 1


def features(samples: int = len(Y), dimensions: int = 4) -> Tensor:
    rng = torch.Generator().manual_seed(0)
    h = torch.randn(samples, dimensions, generator=rng, dtype=torch.float64)
    return h @ torch.rand(dimensions, dimensions, generator=rng, dtype=torch.float64)


def mean_square(h: Tensor) -> Tensor:
    """corr(H): K by its entries, the mean of their squares off the diagonal."""
    z = (h - h.mean(0)) / (1e-8 + h.var(0)).sqrt()
    off = [
        (z[:, i] @ z[:, j]).square() for i in range(h.shape[1]) for j in range(h.shape[1]) if i != j
    ]
    return torch.stack(off).mean()


def reference(h: Tensor, y: Tensor, within: bool) -> Tensor:
    groups = [h[y == c] for c in y.unique()] if within else [h]
    groups = [group for group in groups if len(group) > 1]
    if not groups:
        return 0 * h.sum()
    return torch.stack([mean_square(group) for group in groups]).sum() / sum(map(len, groups))


def ours(h: Tensor, y: Tensor, within: bool) -> Tensor:
    group = y if within else torch.zeros_like(y)
    return correlation(h, group[:, None] == group)


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("within", [False, True])
def test_without_weight_it_is_fedavg_to_the_bit(world: World, net: str, within: bool) -> None:
    method = FedDecorr(weight=0, within=within)
    assert world.same(world.play(method, net=net), world.play(FedAvg(), net=net))


@pytest.mark.parametrize("within", [False, True])
def test_two_rounds_agree_with_the_correlations_one_by_one(world: World, within: bool) -> None:
    w = world.initial().vector
    for round, played in enumerate(world.play(FedDecorr(weight=0.5, within=within)), 1):

        def loss(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
            term = reference(world.features(w, x), y, within)
            return world.cross_entropy(w, x, y) + 0.5 * term

        w = world.mean(world.sgd(w, world.batches(k, round), loss) for k in range(3))
        torch.testing.assert_close(played.server["model"], w, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("within", [False, True])
def test_its_gradient_agrees_with_finite_differences(within: bool) -> None:
    assert_gradient(lambda h: ours(h, Y, within), lambda h: reference(h, Y, within), features())


def test_it_is_the_mean_squared_correlation_times_the_samples() -> None:
    h = features(50)
    r = torch.corrcoef(h.T).fill_diagonal_(0)
    expected = 49**2 * r.square().sum() / 12 / 50
    found = ours(h, torch.zeros(50), False)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@given(st.floats(0.1, 100), st.floats(-50, 50), st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_scale_and_place_of_a_dimension_do_not_matter(
    scale: float, shift: float, within: bool
) -> None:
    h = features()
    other = h.clone()
    other[:, 1] = scale * h[:, 1] + shift
    torch.testing.assert_close(ours(other, Y, within), ours(h, Y, within), rtol=1e-4, atol=1e-9)


def test_of_a_batch_of_one_class_both_forms_have_the_same_bits() -> None:
    h, y = features().float(), torch.full((8,), 3)
    assert torch.equal(ours(h, y, True), ours(h, y, False))


def test_dimensions_that_do_not_follow_each_other_cost_nothing() -> None:
    h = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])  # orthogonal columns
    assert abs(float(ours(h, torch.zeros(4), False))) < 1e-6


@pytest.mark.parametrize("within", [False, True])
def test_samples_that_are_alone_cost_nothing_and_pull_nowhere(within: bool) -> None:
    h = features(1).requires_grad_()
    value = ours(h, Y[:1], within)
    assert value == 0
    assert torch.equal(torch.autograd.grad(value, h)[0], torch.zeros_like(h))


def test_a_dead_dimension_costs_nothing_and_pulls_nowhere() -> None:
    h = features()
    h[:, 2] = 0
    h.requires_grad_()
    (gradient,) = torch.autograd.grad(ours(h, Y, False), h)
    assert torch.equal(gradient[:, 2], torch.zeros(8).double())
    assert torch.isfinite(gradient).all()
    alone = ours(h.detach()[:, [0, 1, 3]], Y, False)
    torch.testing.assert_close(ours(h, Y, False), alone * 6 / 12)


def test_a_single_dimension_follows_no_other() -> None:
    assert ours(features(dimensions=1), Y, False) == pytest.approx(0, abs=1e-6)


def test_the_classifier_learns_from_the_labels_alone(world: World) -> None:
    model, ((x, y),) = world.initial(), world.batches(1, 1, 1)
    grads = []
    for weight in (0, 50):
        client = world.client(1, 1)
        client.gradient(model, FedDecorr(weight=weight).local_loss(client, {}, {}), x, y)
        grads.append(model.grads.clone())
    assert torch.equal(*(grad[model.classifier_part] for grad in grads))
    assert not torch.equal(*(grad[model.features_part] for grad in grads))


def test_fedmr_is_a_preset() -> None:
    assert FedDecorr(preset="fedmr").params == FedDecorr(within=True, weight=0.01).params


def test_its_preset_holds_the_battery_too() -> None:
    check_method(FedDecorr, preset="fedmr")


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("feddecorr")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"weight": -1}, {"within": "both"}])
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedDecorr(**wrong)
