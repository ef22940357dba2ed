"""FedAwS: its limits, the spread-out steps against plain loops, that only the classifier moves,
refusals."""

import pytest
import torch

import fedmap
from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedaws import FedAwS, closeness


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("off", [{"spread_steps": 0}, {"margin": 0}])
def test_without_steps_or_without_margin_it_is_fedavg_to_the_bit(world, net, off):
    assert world.same(world.play(FedAwS(**off), net=net), world.play(FedAvg(), net=net))


def penalty(proxies, margin):
    """The penalty in plain loops over pairs of classes."""
    total = 0
    for i, u in enumerate(proxies):
        for j, v in enumerate(proxies):
            distance = (1 - u @ v / (u.norm() * v.norm())) / 2
            if i != j and distance < margin:
                total = total + (margin - distance) ** 2
    return total / len(proxies) ** 2


def test_two_rounds_are_those_of_its_formula(world):
    w = world.initial().vector.clone()
    for round in (1, 2):
        w = torch.stack(
            [world.sgd(w, world.batches(k, round), world.cross_entropy) for k in range(3)]
        ).mean(0)
        proxies, velocity = w[56:].view(4, 8).clone(), 0
        for _ in range(6):
            at = proxies.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(penalty(at, 0.7), at)
            velocity = 0.9 * velocity + gradient
            proxies = proxies - 0.5 * velocity
        w[56:] = proxies.view(-1)
    played = world.play(FedAwS(margin=0.7, spread_steps=6, spread_lr=0.5))
    torch.testing.assert_close(played[-1].server["model"], w, rtol=0, atol=1e-5)


def test_the_server_moves_the_classifier_alone_and_apart(world):
    model = world.initial("tiny-bn")
    ours, fedavg = (
        world.play(method, 1, net="tiny-bn")[0].server["model"]
        for method in (FedAwS(margin=0.9, spread_lr=1.0), FedAvg())
    )
    head = model.classifier_part
    assert torch.equal(ours[model.features_part], fedavg[model.features_part])
    assert torch.equal(ours[model.weight_count :], fedavg[model.weight_count :])
    assert closeness(ours[head].view(4, 8), 0.9) < 0.7 * closeness(fedavg[head].view(4, 8), 0.9)


def test_proxies_beyond_the_margin_are_left_alone():
    assert closeness(torch.eye(4), 0.5) == 0
    assert closeness(torch.eye(4), 0.6) == pytest.approx(0.1**2 * 12 / 16)


def test_only_the_model_moves(world):
    record = fedmap.run(
        "fedaws", world.federation, net="tiny", rounds=1, fraction=1, epochs=1
    ).rounds[0]
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize(
    "wrong", [{"margin": 1.1}, {"margin": -0.1}, {"spread_steps": -1}, {"spread_lr": 0}]
)
def test_a_parameter_outside_its_range_is_refused_by_name(wrong):
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedAwS(**wrong)
