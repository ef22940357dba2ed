"""FedDF: its limit, the distillation against plain torch, batch norm, the public samples and the
accuracy on the others, refusals."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.methods.conftest import World, present
from torch import Tensor

import fedmap
from fedmap.data import synthetic
from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.feddf import FedDF
from fedmap.random import generator
from fedmap.simulate import Settings
from fedmap.simulate.tasks import Setup

SEED = 3  # of the world
ONCE: dict[str, Any] = {
    "net": "tiny", "rounds": 1, "fraction": 1.0, "epochs": 1, "params": {"distill_steps": 2},
}  # fmt: skip


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_steps_it_is_fedavg_to_the_bit(world: World, net: str) -> None:
    assert world.same(world.play(FedDF(distill_steps=0), net=net), world.play(FedAvg(), net=net))


def orders(round: int, samples: int, size: int) -> Iterator[Tensor]:
    """The batches of public samples, a new order each time all have been seen."""
    rng = generator(SEED, "server", round)
    while True:
        order = torch.from_numpy(rng.permutation(samples))
        yield from (order[i : i + size] for i in range(0, samples, size))


def test_two_rounds_are_those_of_its_formula(world: World) -> None:
    x, steps, lr = world.federation.test_x, 7, 0.01
    w = world.initial().vector.clone()
    for round in (1, 2):
        local = [world.sgd(w, world.batches(k, round), world.cross_entropy) for k in range(3)]
        targets = torch.softmax(torch.stack([world.logits(w_k, x) for w_k in local]).mean(0), 1)
        w = torch.stack(local).mean(0)
        m = v = torch.zeros(88)
        for t, batch in zip(range(steps), orders(round, 20, 8), strict=False):
            at = w.clone().requires_grad_()
            predicted = torch.log_softmax(world.logits(at, x[batch]), 1)
            loss = -(targets[batch] * predicted).sum(1).mean()
            (gradient,) = torch.autograd.grad(loss, at)
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            step = m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8)
            w = w - lr * (1 + math.cos(math.pi * t / steps)) / 2 * step
    played = world.play(FedDF(distill_lr=lr, distill_steps=steps, distill_batch=8))
    torch.testing.assert_close(played[-1].server["model"], w, rtol=0, atol=1e-4)


def test_statistics_of_batch_norm_follow_the_public_samples(world: World) -> None:
    few, many = (
        world.play(FedDF(distill_steps=n, distill_lr=1e-9), 1, net="tiny-bn")[0] for n in (1, 200)
    )
    model, x = world.initial("tiny-bn").load(few.server["model"]), world.federation.test_x
    linear = model.net.get_submodule("features.0")
    seen = linear(x).mean(0)  # what goes into the batch norm
    means = slice(model.weight_count, model.weight_count + 8)
    torch.testing.assert_close(many.server["model"][means], seen, rtol=0, atol=0.05)
    assert (few.server["model"][means] - seen).abs().max() > 0.05


def test_the_engine_reports_the_accuracy_on_samples_that_the_server_did_not_see() -> None:
    dataset = synthetic(classes=4, train=60, test=530, shape=(6,), noise=2.0)
    federation = fedmap.partition(dataset, 3)
    result = fedmap.run("feddf", federation, **ONCE)
    settings = Settings.of({"method": "feddf", "clients": 3, "data": "synthetic"} | ONCE)
    public = Setup(settings, federation).public
    unseen = torch.ones(530, dtype=torch.bool).index_fill(0, public, False)
    right = present(result.global_model)(federation.test_x).argmax(1) == federation.test_y
    assert len(public) == 500
    all_of_them, of_the_unseen = right.double().mean(), right[unseen].double().mean()
    assert result.rounds[-1]["global_accuracy"] == pytest.approx(all_of_them.item())
    assert result.rounds[-1]["global_accuracy_unseen"] == pytest.approx(of_the_unseen.item())


def test_a_test_set_of_fewer_than_500_samples_is_all_public_and_leaves_none_unseen() -> None:
    federation = fedmap.partition(synthetic(classes=4, train=60, test=20, shape=(6,)), 3)
    result = fedmap.run("feddf", federation, **ONCE)
    assert result.rounds[-1]["global_accuracy_unseen"] is None


def test_only_the_model_moves(world: World) -> None:
    record = world.record("feddf", distill_steps=1)
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"distill_lr": 0}, {"distill_steps": -1}, {"distill_batch": 0}])
def test_a_parameter_outside_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedDF(**wrong)
