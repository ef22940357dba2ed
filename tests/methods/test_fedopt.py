"""FedOpt: its limit, the four server optimizers against their formulas, batch norm, what moves,
refusals."""

import pytest
import torch

import fedmap
from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedopt import FedOpt


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_sgd_with_lr_1_and_no_momentum_is_fedavg_to_the_bit(world, net):
    plain = FedOpt(optimizer="sgd", server_lr=1.0, momentum=0.0)
    assert world.same(world.play(plain, 3, net=net), world.play(FedAvg(), 3, net=net))


def clients_mean(world, w, round):
    """The plain mean of three local trainings from w."""
    return torch.stack(
        [world.sgd(w, world.batches(k, round), world.cross_entropy) for k in range(3)]
    ).mean(0)


def test_two_rounds_of_server_sgd_with_momentum_are_those_of_its_formula(world):
    w, m = world.initial().vector.clone(), 0
    for round in (1, 2):
        m = 0.6 * m + (clients_mean(world, w, round) - w)
        w = w + 0.5 * m
    played = world.play(FedOpt(optimizer="sgd", server_lr=0.5, momentum=0.6))
    torch.testing.assert_close(played[-1].server["model"], w, rtol=0, atol=1e-5)
    torch.testing.assert_close(played[-1].server["m"], m, rtol=0, atol=1e-5)


SECOND_MOMENT = {
    "adagrad": lambda v, d: v + d**2,
    "adam": lambda v, d: 0.8 * v + 0.2 * d**2,
    "yogi": lambda v, d: torch.where(v > d**2, v - 0.2 * d**2, v + 0.2 * d**2),
}


@pytest.mark.parametrize("optimizer", SECOND_MOMENT)
def test_two_rounds_of_an_adaptive_server_are_those_of_its_formula(world, optimizer):
    w, m, v = world.initial().vector.clone(), 0, torch.tensor(0.05**2)
    for round in (1, 2):
        d = clients_mean(world, w, round) - w
        m, v = 0.6 * m + 0.4 * d, SECOND_MOMENT[optimizer](v, d)
        w = w + 0.02 * m / (v.sqrt() + 0.05)
    played = world.play(
        FedOpt(optimizer=optimizer, server_lr=0.02, momentum=0.6, beta=0.8, tau=0.05)
    )
    torch.testing.assert_close(played[-1].server["model"], w, rtol=0, atol=1e-5)
    torch.testing.assert_close(played[-1].server["v"], v, rtol=0, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "yogi", "adagrad"])
def test_statistics_of_batch_norm_are_the_plain_mean_whatever_the_optimizer(world, optimizer):
    for played in world.play(FedOpt(optimizer=optimizer, server_lr=0.05), 2, net="tiny-bn"):
        weights = world.initial("tiny-bn").weight_count
        mean = torch.stack([up["model"] for up in played.up.values()]).mean(0)
        torch.testing.assert_close(played.server["model"][weights:], mean[weights:])
        assert (played.server["model"][:weights] - mean[:weights]).abs().max() > 1e-3


def test_only_the_model_moves_and_the_optimizer_stays_on_the_server(world):
    record = fedmap.run(
        "fedopt",
        world.federation,
        net="tiny",
        rounds=1,
        fraction=1,
        epochs=1,
        params={"optimizer": "adam"},
    ).rounds[0]
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"server_lr": 0},
        {"server_lr": 11},
        {"momentum": 1},
        {"momentum": -0.1},
        {"beta": 1},
        {"tau": 0},
        {"optimizer": "rmsprop"},
    ],
)
def test_a_parameter_outside_its_range_is_refused_by_name(wrong):
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedOpt(**wrong)
