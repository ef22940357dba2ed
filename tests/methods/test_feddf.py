"""FedDF: its limit, the distillation against plain torch, batch norm, the public samples and the
accuracy on the others, refusals."""

import math

import pytest
import torch

import fedmap
from fedmap.data import synthetic
from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.feddf import FedDF
from fedmap.random import generator
from fedmap.simulate import Settings
from fedmap.simulate.tasks import Setup

SEED = 3  # of the world


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_steps_it_is_fedavg_to_the_bit(world, net):
    assert world.same(world.play(FedDF(distill_steps=0), net=net), world.play(FedAvg(), net=net))


def orders(round, samples, size):
    """The batches of public samples, a new order each time all have been seen."""
    rng = generator(SEED, "server", round)
    while True:
        order = torch.from_numpy(rng.permutation(samples))
        yield from (order[i : i + size] for i in range(0, samples, size))


def test_two_rounds_are_those_of_its_formula(world):
    x, steps, lr = world.federation.test_x, 7, 0.01
    w = world.initial().vector.clone()
    for round in (1, 2):
        local = [world.sgd(w, world.batches(k, round), world.cross_entropy) for k in range(3)]
        targets = torch.softmax(torch.stack([world.logits(w_k, x) for w_k in local]).mean(0), 1)
        w = torch.stack(local).mean(0)
        m = v = torch.zeros(88)
        for t, batch in zip(range(steps), orders(round, 20, 8), strict=False):
            at = w.clone().requires_grad_()
            loss = (
                -(targets[batch] * torch.log_softmax(world.logits(at, x[batch]), 1)).sum(1).mean()
            )
            (gradient,) = torch.autograd.grad(loss, at)
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            step = m / (1 - 0.9 ** (t + 1)) / ((v / (1 - 0.999 ** (t + 1))).sqrt() + 1e-8)
            w = w - lr * (1 + math.cos(math.pi * t / steps)) / 2 * step
    played = world.play(FedDF(distill_lr=lr, distill_steps=steps, distill_batch=8))
    torch.testing.assert_close(played[-1].server["model"], w, rtol=0, atol=1e-4)


def test_the_student_comes_nearer_to_what_the_clients_say_together(world):
    x, played = world.federation.test_x, world.play(FedDF(distill_steps=60, distill_lr=1e-2), 1)[0]
    uploads = [up["model"] for up in played.up.values()]
    targets = torch.softmax(torch.stack([world.logits(w, x) for w in uploads]).mean(0), 1)

    def away(w):
        return float(
            torch.nn.functional.kl_div(
                torch.log_softmax(world.logits(w, x), 1), targets, reduction="batchmean"
            )
        )

    assert away(played.server["model"]) < 0.2 * away(torch.stack(uploads).mean(0))


def test_statistics_of_batch_norm_follow_the_public_samples(world):
    few, many = (
        world.play(FedDF(distill_steps=n, distill_lr=1e-9), 1, net="tiny-bn")[0] for n in (1, 200)
    )
    model, x = world.initial("tiny-bn").load(few.server["model"]), world.federation.test_x
    seen = model.net.features[0](x).mean(0)  # what goes into the batch norm
    means = slice(model.weight_count, model.weight_count + 8)
    torch.testing.assert_close(many.server["model"][means], seen, rtol=0, atol=0.05)
    assert (few.server["model"][means] - seen).abs().max() > 0.05


def test_the_engine_reports_the_accuracy_on_samples_that_the_server_did_not_see():
    federation = fedmap.partition(
        synthetic(classes=4, train=60, test=530, shape=(6,), noise=2.0), 3
    )
    given = {
        "net": "tiny",
        "rounds": 1,
        "fraction": 1.0,
        "epochs": 1,
        "params": {"distill_steps": 2},
    }
    result = fedmap.run("feddf", federation, **given)
    settings = Settings.of({"method": "feddf", "clients": 3, "data": "synthetic"} | given)
    public = Setup(settings, federation).public
    unseen = torch.ones(530, dtype=torch.bool).index_fill(0, public, False)
    right = result.global_model(federation.test_x).argmax(1) == federation.test_y
    assert len(public) == 500
    assert result.rounds[-1]["global_accuracy"] == pytest.approx(right.double().mean().item())
    assert result.rounds[-1]["global_accuracy_unseen"] == pytest.approx(
        right[unseen].double().mean().item()
    )


def test_a_test_set_of_fewer_than_500_samples_is_all_public_and_leaves_none_unseen():
    federation = fedmap.partition(synthetic(classes=4, train=60, test=20, shape=(6,)), 3)
    result = fedmap.run(
        "feddf",
        federation,
        net="tiny",
        rounds=1,
        fraction=1.0,
        epochs=1,
        params={"distill_steps": 2},
    )
    assert result.rounds[-1]["global_accuracy_unseen"] is None


def test_only_the_model_moves(world):
    record = fedmap.run(
        "feddf",
        world.federation,
        net="tiny",
        rounds=1,
        fraction=1,
        epochs=1,
        params={"distill_steps": 1},
    ).rounds[0]
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"distill_lr": 0}, {"distill_steps": -1}, {"distill_batch": 0}])
def test_a_parameter_outside_its_range_is_refused_by_name(wrong):
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedDF(**wrong)
