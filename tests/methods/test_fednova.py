"""FedNova: its limit, the normalizer against the paper's closed forms, two rounds by its formula,
what moves, refusals."""

import pytest
import torch

import fedmap
from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fednova import FedNova, normalizer


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_with_equal_steps_it_is_fedavg_to_the_bit(world, net, momentum):
    equal = {
        "batch": 64,
        "momentum": momentum,
    }  # one batch holds all of any client, so all have five steps
    plain = FedNova(server_momentum=0, mu=0)
    assert world.same(
        world.play(plain, 3, net=net, **equal), world.play(FedAvg(), 3, net=net, **equal)
    )


def test_with_unequal_steps_it_is_not_fedavg(world):
    assert not world.same(world.play(FedNova(server_momentum=0, mu=0)), world.play(FedAvg()))


def test_the_normalizer_is_the_papers_for_plain_momentum_and_proximal_sgd():
    assert normalizer(7, 0, 0) == 7
    assert normalizer(7, 0.9, 0) == pytest.approx(
        sum((1 - 0.9**i) / (1 - 0.9) for i in range(1, 8))
    )
    assert normalizer(7, 0, 0.02) == pytest.approx(sum((1 - 0.02) ** i for i in range(7)))


def test_the_normalizer_is_how_far_sgd_goes_under_a_constant_gradient():
    lr, momentum, mu, start = 0.1, 0.8, 0.5, 3.0
    w = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=lr, momentum=momentum)
    for _ in range(9):
        optimizer.zero_grad()
        (2 * w + mu / 2 * (w - start) ** 2).backward()
        optimizer.step()
    assert (start - w.item()) / (2 * lr) == pytest.approx(normalizer(9, momentum, lr * mu))


@pytest.mark.parametrize("tau", ["normalized", "steps"])
def test_two_rounds_are_those_of_its_formula(world, tau):
    mu, gmf, lr = 0.3, 0.4, world.training.lr
    steps = torch.tensor([float(len(world.batches(k, 1))) for k in range(3)])
    assert len(set(steps.tolist())) == 3
    a = torch.tensor([normalizer(int(n), 0.9, lr * mu) for n in steps])
    w, buffer = world.initial().vector.clone(), 0
    for round in (1, 2):

        def loss(at, x, y, anchor=w):
            return world.cross_entropy(at, x, y) + mu / 2 * (at - anchor).square().sum()

        local = [world.sgd(w, world.batches(k, round), loss) for k in range(3)]
        d = torch.stack([(w - w_k) / a_k for w_k, a_k in zip(local, a, strict=True)]).mean(0)
        buffer = gmf * buffer + (a if tau == "normalized" else steps).mean() * d / lr
        w = w - lr * buffer
    played = world.play(FedNova(server_momentum=gmf, mu=mu, tau=tau))
    assert [played[0].up[k]["steps"] for k in range(3)] == steps.tolist()
    torch.testing.assert_close(played[-1].server["model"], w, rtol=0, atol=1e-5)


def test_statistics_of_batch_norm_are_the_plain_mean(world):
    played = world.play(FedNova(), 2, net="tiny-bn")[-1]
    weights = world.initial("tiny-bn").weight_count
    mean = torch.stack([up["model"] for up in played.up.values()]).mean(0)
    torch.testing.assert_close(played.server["model"][weights:], mean[weights:])


def test_the_model_and_two_numbers_go_up_and_the_model_alone_comes_down(world):
    record = fedmap.run(
        "fednova", world.federation, net="tiny", rounds=1, fraction=1, epochs=1
    ).rounds[0]
    assert (record["bytes_down"], record["bytes_up"]) == (3 * 88 * 4, 3 * (88 * 4 + 16))


@pytest.mark.parametrize(
    "wrong", [{"server_momentum": 1}, {"server_momentum": -0.1}, {"mu": -1}, {"tau": "mean"}]
)
def test_a_parameter_outside_its_range_is_refused_by_name(wrong):
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedNova(**wrong)
