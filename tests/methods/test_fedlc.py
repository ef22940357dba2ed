"""FedLC: margins by count, and the limits in which it is the plain masked softmax."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.methods.conftest import World, assert_gradient
from torch import Tensor, nn

from fedmap import FedmapError
from fedmap.losses import balanced_softmax
from fedmap.methods.fedlc import FedLC, margins
from fedmap.methods.fedrod import FedROD

UNCHANGED: Any = nn.Identity()  # a model whose logits are its samples


def reference(g: Tensor, y: Tensor, n: Tensor, tau: float) -> Tensor:
    """The softmax by its definition over the classes that there are."""
    has = n.nonzero().squeeze(1).tolist()
    odds = torch.exp(g[:, has] - tau / n[has].sqrt().sqrt())
    label = torch.tensor([has.index(int(c)) for c in y])
    return -(odds[torch.arange(len(y)), label] / odds.sum(1)).log().mean()


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_margins_its_global_model_is_fedrods_without_prior(world: World, net: str) -> None:
    ours, fedrod = world.play(FedLC(tau=0), net=net), world.play(FedROD(gamma=0), net=net)
    assert world.same(ours, fedrod)


def test_two_rounds_agree_with_the_margins_written_out(world: World) -> None:
    w = world.initial().vector
    for round, played in enumerate(world.play(FedLC(tau=3)), 1):
        uploads = []
        for k in range(3):
            n = torch.bincount(world.client(k, 1).train_data[1], minlength=4)

            def loss(w: Tensor, x: Tensor, y: Tensor, n: Tensor = n) -> Tensor:
                return reference(world.logits(w, x), y, n, 3)

            uploads.append(world.sgd(w, world.batches(k, round), loss))
        w = world.mean(uploads)
        torch.testing.assert_close(played.server["model"], w, atol=1e-5, rtol=1e-4)


@given(st.floats(0, 20), st.integers(1, 5000))
@settings(max_examples=20, deadline=None)
def test_its_gradient_agrees_with_finite_differences(tau: float, most: int) -> None:
    n, y = torch.tensor([most, 0, 3, 1]), torch.tensor([0, 2, 0, 3, 0])
    g = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    loss = balanced_softmax(margins(n, tau).double())
    assert_gradient(lambda g: loss(UNCHANGED, g, y), lambda g: reference(g, y, n, tau), g)


@pytest.mark.parametrize("counts", [[7, 0, 7, 7], [7, 7, 7, 7]])
def test_with_equal_counts_every_tau_has_the_gradient_of_none(counts: list[int]) -> None:
    n, y = torch.tensor(counts), torch.tensor([0, 2, 3])
    g = torch.randn(3, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)
    one, other = (
        torch.autograd.grad(balanced_softmax(margins(n, tau))(UNCHANGED, g, y), g)[0]
        for tau in (0, 5)
    )
    torch.testing.assert_close(one, other)


def test_a_rare_class_has_the_larger_margin_and_a_missing_one_is_out() -> None:
    shift = margins(torch.tensor([16, 1, 0, 81]), 2.0)
    torch.testing.assert_close(shift, torch.tensor([-1, -2, -torch.inf, -2 / 3]))


def test_proxies_of_missing_classes_do_not_move(world: World) -> None:
    (only,) = world.play(FedLC(), 1, weight_decay=0)
    moved = (only.up[0]["model"] != world.initial().vector)[56:].view(4, 8).any(1)
    assert moved.tolist() == [True, True, False, False]  # client 0 has the classes 0 and 1


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("fedlc")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


def test_a_negative_margin_is_refused() -> None:
    with pytest.raises(FedmapError, match=r"method fedlc: tau is -1"):
        FedLC(tau=-1)
