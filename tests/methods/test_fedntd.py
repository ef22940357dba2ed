"""FedNTD and FedLMD: what the download tells of a sample, and of which classes."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.methods.conftest import World, assert_gradient, models_taken
from torch import Tensor

from fedmap import FedmapError, check_method
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedntd import FedNTD, frequent, not_true

COUNTS = torch.tensor([9, 2, 0, 1])  # 3 on average
RARE, ALL = frequent(COUNTS), torch.zeros(4, dtype=torch.bool)
Y = torch.tensor([0, 1, 3, 0, 2])


def reference(g: Tensor, t: Tensor, y: Tensor, silent: list[int] | Tensor, tau: float) -> Tensor:
    """The distillation, sample by sample, over lists of classes."""
    terms, classes = [], g.shape[1]
    for i, label in enumerate(y.tolist()):
        others = [c for c in range(classes) if c != label]
        told = [c for c in others if c not in silent] or others
        q_s, q_t = torch.softmax(g[i, others] / tau, 0), torch.softmax(t[i, told] / tau, 0)
        at = [others.index(c) for c in told]
        terms.append((q_t * (q_t / q_s[at]).log()).sum())
    return tau**2 * torch.stack(terms).mean()


def two_logits(samples: int = len(Y), classes: int = 4) -> tuple[Tensor, Tensor]:
    """A student's and a teacher's."""
    rng = torch.Generator().manual_seed(0)
    g, t = 2 * torch.randn(2, samples, classes, generator=rng, dtype=torch.float64)
    return g, t


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("told", ["nottrue", "rare"])
def test_without_weight_it_is_fedavg_to_the_bit(world: World, net: str, told: str) -> None:
    ours = world.play(FedNTD(weight=0, told=told), net=net)
    assert world.same(ours, world.play(FedAvg(), net=net))


@pytest.mark.parametrize("told", ["nottrue", "rare"])
def test_two_rounds_agree_with_a_distillation_sample_by_sample(world: World, told: str) -> None:
    w = world.initial().vector
    for round, played in enumerate(world.play(FedNTD(weight=2, temperature=3, told=told)), 1):
        uploads = []
        for k in range(3):
            n = world.federation.counts[k]
            silent = [c for c in range(4) if n[c] > n.sum() / 4] if told == "rare" else []

            def loss(
                w: Tensor, x: Tensor, y: Tensor, start: Tensor = w, silent: list[int] = silent
            ) -> Tensor:
                term = reference(world.logits(w, x), world.logits(start, x), y, silent, 3)
                return world.cross_entropy(w, x, y) + 2 * term

            uploads.append(world.sgd(w, world.batches(k, round), loss))
        w = world.mean(uploads)
        torch.testing.assert_close(played.server["model"], w, atol=1e-5, rtol=1e-4)


@given(st.floats(0.3, 20), st.sets(st.integers(0, 3)))
@settings(max_examples=20, deadline=None)
def test_its_gradient_agrees_with_finite_differences(tau: float, silent: set[int]) -> None:
    """Whatever the classes are that the teacher is silent about, none and all of them too."""
    g, t = two_logits()
    out = torch.tensor([c in silent for c in range(4)])
    assert_gradient(
        lambda g: not_true(g, t, Y, out, tau), lambda g: reference(g, t, Y, [*silent], tau), g
    )


@pytest.mark.parametrize("silent", [ALL, RARE])
def test_the_gradient_is_tau_times_the_difference_and_none_at_the_label(silent: Tensor) -> None:
    g, t = two_logits(1)
    g.requires_grad_()
    (gradient,) = torch.autograd.grad(not_true(g, t, Y[1:2], silent, 3.0), g)
    q_s = torch.softmax(g[0, [0, 2, 3]].detach() / 3, 0)
    q_t = torch.zeros(3, dtype=torch.float64)
    told = (~silent[[0, 2, 3]]).nonzero().squeeze(1)
    q_t[told] = torch.softmax(t[0, [0, 2, 3]][told] / 3, 0)
    torch.testing.assert_close(gradient[0, [0, 2, 3]], 3 * (q_s - q_t))
    assert gradient[0, 1] == 0


@pytest.mark.parametrize("silent", [ALL, RARE])
def test_what_the_teacher_says_of_the_label_or_of_all_classes_alike_changes_nothing(
    silent: Tensor,
) -> None:
    g, t = two_logits()
    other = t + 5
    other[torch.arange(len(Y)), Y] += 30
    one = not_true(g, t, Y, silent, 1.0)
    torch.testing.assert_close(one, not_true(g, other, Y, silent, 1.0))


def test_of_two_classes_nothing_is_told() -> None:
    g, t = two_logits(classes=2)
    g.requires_grad_()
    value = not_true(g, t, Y.clamp_max(1), ALL[:2], 2.0)
    assert value == 0
    assert torch.equal(torch.autograd.grad(value, g)[0], torch.zeros_like(g))


def test_a_student_like_its_teacher_pays_for_frequent_classes_only() -> None:
    """-log of the share that the rare classes have among the not-true ones."""
    g, y = two_logits()[0][:2], torch.tensor([1, 3])
    assert not_true(g, g, y, ALL, 1.0) == 0
    odds = g.exp()
    shares = [
        odds[0, [2, 3]].sum() / odds[0, [0, 2, 3]].sum(),
        odds[1, 1:3].sum() / odds[1, :3].sum(),
    ]
    expected = -torch.stack(shares).log().mean()
    torch.testing.assert_close(not_true(g, g, y, RARE, 1.0), expected)


def test_a_class_is_frequent_above_the_mean_count_and_not_at_it() -> None:
    assert frequent(torch.tensor([5, 9, 4, 2])).tolist() == [False, True, False, False]


def test_where_all_classes_are_there_alike_fedlmd_is_fedntd_to_the_bit(world: World) -> None:
    model, ((x, y),) = world.initial(), world.batches(1, 1, 1)
    found = []
    for told in ("nottrue", "rare"):
        client = world.client(0, 1)
        client.counts = torch.tensor([6, 6, 6, 6])
        down = {"model": torch.ones(88)}
        client.gradient(model, FedNTD(told=told).local_loss(client, down, {}), x, y)
        found.append(model.grads.clone())
    assert torch.equal(*found)


def test_the_download_is_seen_in_evaluation_mode_and_stays_as_it_was(world: World) -> None:
    down = {"model": world.initial("tiny-bn").vector}
    client = world.client(0, 1, "tiny-bn")
    taken = models_taken(client)
    loss = FedNTD().local_loss(client, down, {})
    client.train(client.model(down["model"]), loss, 3)
    frozen, _ = taken
    assert not frozen.net.training
    assert torch.equal(frozen.vector, down["model"])


def test_fedlmd_is_a_preset() -> None:
    assert FedNTD(preset="fedlmd").params == FedNTD(told="rare").params


def test_its_preset_holds_the_battery_too() -> None:
    check_method(FedNTD, preset="fedlmd")


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("fedntd", told="rare")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"weight": -1}, {"temperature": 0}, {"told": "all"}])
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedNTD(**wrong)
