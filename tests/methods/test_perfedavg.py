"""PerFedAvg: first-order meta-learning on every client, averaged."""

from typing import Any

import pytest
import torch
from tests.methods.conftest import World
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.methods.perfedavg import PerFedAvg

Batch = tuple[Tensor, Tensor]


def step(world: World, at: Tensor, batch: Batch, lr: float, clip: float | None = None) -> Tensor:
    """The change of one step of plain SGD."""
    loss = world.cross_entropy
    return world.sgd(at, [batch], loss, lr=lr, momentum=0, decay=0, clip=clip) - at


@pytest.mark.parametrize("clip", [None, 0.3])
def test_two_rounds_agree_with_the_formula(world: World, clip: float | None) -> None:
    """The clip holds for both steps of an iteration."""
    history = world.play(PerFedAvg(beta=0.2, inner=0.5), clip=clip)
    w = world.initial().vector
    for round in (1, 2):
        uploads = []
        for k in range(3):
            meta, steps = w, world.client(k, round).steps
            batches = world.batches(k, round, 2 * steps)
            for first, second in zip(batches[::2], batches[1::2], strict=True):
                trial = meta + step(world, meta, first, 0.5 * world.training.lr, clip)
                meta = meta + step(world, trial, second, 0.2, clip)
            assert torch.allclose(history[round - 1].up[k]["model"], meta, atol=1e-6)
            uploads.append(meta)
        w = world.mean(uploads)
        assert torch.allclose(history[round - 1].server["model"], w, atol=1e-6)


def test_without_a_trial_step_it_is_plain_sgd_on_every_second_batch(world: World) -> None:
    (only,) = world.play(PerFedAvg(beta=0.2, inner=0), 1)
    batches = world.batches(0, 1, 2 * world.client(0, 1).steps)
    expected = world.sgd(
        world.initial().vector, batches[1::2], world.cross_entropy, lr=0.2, momentum=0, decay=0
    )
    assert torch.allclose(only.up[0]["model"], expected, atol=1e-6)


def test_both_steps_are_plain_sgd(world: World) -> None:
    usual = world.play(PerFedAvg())
    assert world.same(usual, world.play(PerFedAvg(), momentum=0, weight_decay=0))


def test_the_personal_model_is_the_uploaded_one_unless_it_is_to_adapt(world: World) -> None:
    (usual,), (adapted,) = world.play(PerFedAvg(), 1), world.play(PerFedAvg(adaptation_steps=2), 1)
    assert torch.equal(usual.personal[0]["model"], usual.up[0]["model"])
    assert torch.equal(adapted.up[0]["model"], usual.up[0]["model"])
    w = usual.up[0]["model"]
    for batch in world.batches(0, 1, 2 * world.client(0, 1).steps + 2)[-2:]:
        w = w + step(world, w, batch, world.training.lr)
    assert torch.allclose(adapted.personal[0]["model"], w, atol=1e-6)


def test_a_warm_up_holds_for_both_rates(world: World) -> None:
    (warm,) = world.play(PerFedAvg(beta=0.2), 1, warmup_rounds=4)
    (slow,) = world.play(PerFedAvg(beta=0.05), 1, lr=0.025)
    assert torch.allclose(warm.server["model"], slow.server["model"], atol=1e-7)


def test_statistics_of_batch_norm_are_kept_and_averaged(world: World) -> None:
    net = "tiny-bn"
    (only,) = world.play(PerFedAvg(), 1, net=net)
    count = world.initial(net).weight_count
    expected = world.mean(only.up[k]["model"][count:] for k in range(3))
    assert not torch.equal(expected, world.initial(net).buffers)
    assert torch.allclose(only.server["model"][count:], expected)


def test_one_model_goes_up_and_one_down(world: World) -> None:
    (only,) = world.play(PerFedAvg(), 1)
    assert only.up[0].keys() == PerFedAvg().download(only.server).keys() == {"model"}


@pytest.mark.parametrize("wrong", [{"beta": 0}, {"inner": 1.5}, {"adaptation_steps": -1}])
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=f"method perfedavg: {next(iter(wrong))} is"):
        PerFedAvg(**wrong)
