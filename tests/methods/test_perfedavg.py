"""PerFedAvg: first-order meta-learning on every client, averaged."""

import pytest
import torch

from fedmap.errors import FedmapError
from fedmap.methods.perfedavg import PerFedAvg


def gradient(world, w, x, y):
    at = w.clone().requires_grad_()
    return torch.autograd.grad(world.cross_entropy(at, x, y), at)[0]


def test_two_rounds_agree_with_the_formula(world):
    history = world.play(PerFedAvg(beta=0.2, inner=0.5))
    w = world.initial().vector
    for round in (1, 2):
        uploads = []
        for k in range(3):
            meta, steps = w, world.client(k, round).steps
            batches = world.batches(k, round, 2 * steps)
            for first, second in zip(batches[::2], batches[1::2], strict=True):
                adapted = meta - 0.5 * 0.1 * gradient(
                    world, meta, *first
                )  # the world's learning rate is 0.1
                meta = meta - 0.2 * gradient(world, adapted, *second)
            assert torch.allclose(history[round - 1].up[k]["model"], meta, atol=1e-6)
            uploads.append(meta)
        w = torch.stack(uploads).mean(0)
        assert torch.allclose(history[round - 1].server["model"], w, atol=1e-6)


def test_without_a_trial_step_it_is_plain_sgd_on_every_second_batch(world):
    (only,) = world.play(PerFedAvg(beta=0.2, inner=0), 1)
    batches = world.batches(0, 1, 2 * world.client(0, 1).steps)
    expected = world.sgd(
        world.initial().vector, batches[1::2], world.cross_entropy, lr=0.2, momentum=0, decay=0
    )
    assert torch.allclose(only.up[0]["model"], expected, atol=1e-6)


def test_both_steps_are_plain_sgd(world):
    usual = world.play(PerFedAvg())
    assert world.same(usual, world.play(PerFedAvg(), momentum=0, weight_decay=0))


def test_the_personal_model_is_the_uploaded_one_unless_it_is_to_adapt(world):
    (usual,), (adapted,) = world.play(PerFedAvg(), 1), world.play(PerFedAvg(adaptation_steps=1), 1)
    assert torch.equal(usual.personal[0]["model"], usual.up[0]["model"])
    assert torch.equal(adapted.up[0]["model"], usual.up[0]["model"])
    w = usual.up[0]["model"]
    (next_batch,) = world.batches(0, 1, 2 * world.client(0, 1).steps + 1)[-1:]
    assert torch.allclose(
        adapted.personal[0]["model"], w - 0.1 * gradient(world, w, *next_batch), atol=1e-6
    )


def test_a_warm_up_holds_for_both_rates(world):
    (warm,) = world.play(PerFedAvg(beta=0.2), 1, warmup_rounds=4)
    (slow,) = world.play(PerFedAvg(beta=0.05), 1, lr=0.025)
    assert torch.allclose(warm.server["model"], slow.server["model"], atol=1e-7)


def test_statistics_of_batch_norm_are_kept_and_averaged(world):
    net = "tiny-bn"
    (only,) = world.play(PerFedAvg(), 1, net=net)
    count = world.initial(net).weight_count
    expected = torch.stack([only.up[k]["model"][count:] for k in range(3)]).mean(0)
    assert not torch.equal(expected, world.initial(net).buffers)
    assert torch.allclose(only.server["model"][count:], expected)


def test_one_model_goes_up_and_one_down(world):
    (only,) = world.play(PerFedAvg(), 1)
    assert only.up[0].keys() == PerFedAvg().download(only.server).keys() == {"model"}


@pytest.mark.parametrize("wrong", [{"beta": 0}, {"inner": 1.5}, {"adaptation_steps": -1}])
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(FedmapError, match=f"method perfedavg: {next(iter(wrong))} is"):
        PerFedAvg(**wrong)
