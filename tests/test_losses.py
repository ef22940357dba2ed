"""Losses beside their equations, written out by hand."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedmap.losses import (
    balanced_shift,
    class_scale,
    contrast,
    cross_entropy,
    distillation,
    mmd,
    restricted_softmax,
)
from fedmap.nets import build
from fedmap.vector import Model


def a_batch() -> tuple[Model, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(3)
    return (
        Model(build("tiny", (6,), 4, 0)),
        torch.randn(10, 6, generator=rng),
        torch.randint(0, 2, (10,), generator=rng),
    )


def gradient(loss: Tensor, model: Model) -> Tensor:
    model.grads.zero_()
    loss.backward()
    return model.grads.clone()


def test_restricted_softmax_with_alpha_one_is_softmax_to_the_bit() -> None:
    model, x, y = a_batch()
    scale = class_scale(
        torch.tensor([5, 5, 0, 0]), torch.tensor([True, True, False, False]), alpha=1.0
    )
    ours, plain = restricted_softmax(scale)(model, x, y), cross_entropy(model, x, y)
    assert torch.equal(ours, plain)
    assert torch.equal(gradient(ours, model), gradient(plain, model))


def test_the_push_on_a_missing_proxy_is_alpha_times_probability_times_feature() -> None:
    """Eq. 9, computed by hand for every missing class."""
    model, x, y = a_batch()
    alpha = 0.3
    scale = class_scale(torch.tensor([5, 5, 0, 0]), torch.tensor([True, True, False, False]), alpha)
    grads = gradient(restricted_softmax(scale)(model, x, y), model)
    h = model.features(x).detach()
    p = torch.softmax(model.classify(h) * scale, 1).detach()
    proxies = grads[model.classifier_part].view(4, 8)
    for c in (2, 3):
        torch.testing.assert_close(proxies[c], alpha * (p[:, c, None] * h).mean(0))


def test_alpha_zero_leaves_missing_proxies_where_they_are() -> None:
    model, x, y = a_batch()
    scale = class_scale(torch.tensor([5, 5, 0, 0]), torch.tensor([True, True, False, False]), 0.0)
    proxies = gradient(restricted_softmax(scale)(model, x, y), model)[model.classifier_part].view(
        4, 8
    )
    assert torch.equal(proxies[2:], torch.zeros(2, 8))
    assert proxies[:2].abs().sum() > 0


@given(st.floats(0, 1))
def test_the_gradient_of_the_restricted_softmax_agrees_with_finite_differences_of_eq_8(
    alpha: float,
) -> None:
    rng = torch.Generator().manual_seed(1)
    logits = torch.randn(5, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    y, scale = torch.tensor([0, 1, 0, 1, 1]), torch.tensor([1.0, 1.0, alpha, alpha])

    def by_hand(at: Tensor) -> Tensor:
        powers = (at * scale).exp()
        return -(powers[range(5), y] / powers.sum(1)).log().mean()

    unchanged: Any = nn.Identity()  # a model whose logits are its samples
    loss = restricted_softmax(scale)(unchanged, logits, y)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(loss, by_hand(logits))
    steps = 1e-5 * torch.eye(20, dtype=torch.float64).view(20, 5, 4)
    slopes = [(by_hand(logits + step) - by_hand(logits - step)) / 2e-5 for step in steps]
    torch.testing.assert_close(gradient.flatten(), torch.stack(slopes), rtol=1e-6, atol=1e-9)


def test_scales_by_mode() -> None:
    counts = torch.tensor([6, 3, 1, 0])
    observed = counts >= 1
    torch.testing.assert_close(
        class_scale(counts, observed, 0.5, "binary"), torch.tensor([1, 1, 1, 0.5])
    )
    torch.testing.assert_close(
        class_scale(counts, observed, 0.5, "soft"), torch.tensor([1, 0.75, 0.5 + 0.5 / 6, 0.5])
    )
    torch.testing.assert_close(
        class_scale(counts, observed, 0.5, "share"), torch.tensor([0.6, 0.3, 0.1, 0.0])
    )


def test_distillation_is_tau_squared_times_the_divergence_from_the_teacher() -> None:
    rng = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(3, 5, generator=rng), torch.randn(3, 5, generator=rng)
    p, q = torch.softmax(teacher / 4, 1), torch.softmax(student / 4, 1)
    by_hand = 16 * (p * (p / q).log()).sum(1).mean()
    torch.testing.assert_close(distillation(student, teacher, 4.0), by_hand)


def test_distillation_from_an_equal_teacher_pulls_nowhere() -> None:
    logits = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = distillation(logits, logits.detach().clone(), 4.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(gradient, torch.zeros(3, 5), atol=1e-6, rtol=0)


def mmd_by_loops(h: Tensor, other: Tensor) -> Tensor:
    """Eq. 12 as it is written: means of kernels over all pairs, the bandwidth held constant."""
    both = torch.cat([h, other]).detach()
    n = len(both)
    base = sum(float((a - b).square().sum()) for a in both for b in both) / (n * n - n) + 1e-8

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        squared = (a - b).square().sum()
        return torch.stack([torch.exp(-squared / (base * f)) for f in (0.25, 0.5, 1, 2, 4)]).sum()

    def mean(left: Tensor, right: Tensor) -> Tensor:
        return torch.stack([kernel(a, b) for a in left for b in right]).mean()

    return mean(h, h) + mean(other, other) - 2 * mean(h, other)


def two_sets_of_features(samples: int = 4) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    h, other = torch.randn(samples, 3, generator=rng), torch.randn(samples, 3, generator=rng)
    return h, other + 1


@pytest.mark.parametrize("samples", [2, 4])
def test_mmd_is_the_mean_kernel_within_less_the_one_between(samples: int) -> None:
    h, other = two_sets_of_features(samples)
    torch.testing.assert_close(mmd(h, other), mmd_by_loops(h, other), rtol=1e-4, atol=1e-5)


def test_mmd_of_features_that_hardly_differ_is_damped_by_the_least_bandwidth() -> None:
    h, other = (1e-5 * features for features in two_sets_of_features())
    torch.testing.assert_close(mmd(h, other), mmd_by_loops(h, other), rtol=1e-2, atol=1e-6)


def test_mmd_keeps_its_digits_far_from_the_origin() -> None:
    h, other = two_sets_of_features()
    torch.testing.assert_close(mmd(h + 1000, other + 1000), mmd(h, other), rtol=1e-2, atol=1e-3)


def test_the_bandwidth_of_mmd_has_no_part_in_its_gradient() -> None:
    h, other = two_sets_of_features()
    h.requires_grad_()
    (ours,), (by_loops,) = (torch.autograd.grad(f(h, other), h) for f in (mmd, mmd_by_loops))
    torch.testing.assert_close(ours, by_loops, rtol=1e-4, atol=1e-5)


def test_mmd_of_equal_features_is_zero_and_finite_in_its_gradient() -> None:
    h = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    value = mmd(h, h.detach().clone())
    (gradient,) = torch.autograd.grad(value, h)
    assert abs(value.item()) < 1e-5
    assert torch.isfinite(gradient).all()


def test_a_single_sample_has_no_discrepancy_and_pulls_nowhere() -> None:
    h = torch.tensor([[1.0, -1.0]], requires_grad=True)
    value = mmd(h, torch.tensor([[5.0, 5.0]]))
    assert value == 0
    assert torch.equal(torch.autograd.grad(value, h)[0], torch.zeros(1, 2))


def test_contrast_is_the_softmax_loss_of_two_cosines() -> None:
    rng = torch.Generator().manual_seed(0)
    h, near, far = torch.randn(3, 5, 4, generator=rng)

    def cosine(other: Tensor) -> Tensor:
        return (h * other).sum(1) / (h.norm(dim=1) * other.norm(dim=1))

    towards, away = (cosine(near) / 0.5).exp(), (cosine(far) / 0.5).exp()
    by_hand = -(towards / (towards + away)).log().mean()
    torch.testing.assert_close(contrast(h, near, far, 0.5), by_hand)


def test_the_balanced_shift_is_gamma_times_the_log_of_counts_and_shuts_out_empty_classes() -> None:
    shift = balanced_shift(torch.tensor([0, 1, 5]), 0.5)
    torch.testing.assert_close(shift, torch.tensor([-torch.inf, 0.0, 0.5 * math.log(5)]))
