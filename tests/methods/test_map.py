from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fedmap
from fedmap.client import Client
from fedmap.federation import Federation
from fedmap.methods.map import MAP
from fedmap.methods.parts.hpm import HPMParams, inherit, no_hpm
from fedmap.nets import build
from fedmap.simulate import Settings
from fedmap.simulate.tasks import Setup
from fedmap.values import number
from fedmap.vector import Model

SETTINGS: dict[str, Any] = {
    "net": "tiny",
    "rounds": 2,
    "fraction": 1.0,
    "epochs": 1,
    "batch": 8,
    "lr": 0.1,
}


@pytest.fixture(scope="module")
def three(federation: Federation) -> Federation:
    """Three clients with two of the four classes each."""
    x, y = federation.dataset.train_x, federation.dataset.train_y
    return Federation.from_arrays(
        [(x[here], y[here]) for here in (y < 2, (y > 0) & (y < 3), y > 1)]
    )


def a_client(federation: Federation, number: int, round: int) -> Client:
    training = Settings(rounds=2, fraction=1, epochs=1, batch=8, lr=0.1, net="tiny")
    return Setup(training, federation).client(number, round)


def weights(net: nn.Module | None) -> torch.Tensor:
    assert net is not None
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def test_without_its_two_ideas_it_is_fedavg_to_the_bit(federation: Federation) -> None:
    off = {"alpha": 1.0, "weight": 0.0, "stage_one": 1.0, "stage_two": 0.0}
    ours, fedavg = (
        fedmap.run("map", federation, params=off, **SETTINGS),
        fedmap.run("fedavg", federation, **SETTINGS),
    )
    assert torch.equal(weights(ours.global_model), weights(fedavg.global_model))
    assert [r["train_loss"] for r in ours.rounds] == [r["train_loss"] for r in fedavg.rounds]


def test_only_the_first_stage_is_uploaded(federation: Federation) -> None:
    """Whatever happens in stage two, the global model is the one of stage one alone."""
    half = {"stage_one": 0.5, "alpha": 0.5}
    short = fedmap.run("map", federation, params=half | {"stage_two": 0.0}, **SETTINGS)
    long = fedmap.run(
        "map", federation, params=half | {"stage_two": 0.5, "weight": 0.1}, **SETTINGS
    )
    assert torch.equal(weights(short.global_model), weights(long.global_model))
    assert not torch.equal(weights(short.personal_model(0)), weights(long.personal_model(0)))


def train(net: nn.Module, batches: list[Any], loss: Any) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5)
    for x, y in batches:
        optimizer.zero_grad()
        loss(net, x, y).backward()
        optimizer.step()


@pytest.mark.parametrize("transfer", ["kd", "mmd"])
def test_two_rounds_of_three_clients_agree_with_algorithm_1_in_plain_torch(
    three: Federation, transfer: str
) -> None:
    alpha, lam = 0.4, 0.2
    params = {"alpha": alpha, "weight": lam, "transfer": transfer, "preset": "printed"}
    result = fedmap.run("map", three, params=params, **SETTINGS)

    server = build("tiny", (6,), 4, 0)
    hpms: dict[int, nn.Module] = {}
    for round in (1, 2):
        uploads = []
        for k in range(3):
            client = a_client(three, k, round)
            batches = list(client.batches(client.steps))
            net = deepcopy(server)
            scale = torch.tensor([1.0 if c in client.train_data[1] else alpha for c in range(4)])
            train(
                net,
                batches[: client.steps // 2],
                lambda net, x, y, a=scale: F.cross_entropy(net(x) * a, y),
            )
            uploads.append(deepcopy(net))
            hpm = hpms.get(k)

            def taught(
                net: nn.Module, x: torch.Tensor, y: torch.Tensor, hpm: nn.Module | None = hpm
            ) -> torch.Tensor:
                if hpm is None:
                    return F.cross_entropy(net(x), y)
                if transfer == "kd":
                    p, q = (hpm(x).detach() / 4).softmax(1), (net(x) / 4).softmax(1)
                    kt = 16 * (p * (p.log() - q.log())).sum(1).mean()
                else:
                    h = torch.cat([net.features(x), hpm.features(x).detach()])
                    d = (h[:, None] - h[None]).square().sum(2)
                    b = d.detach().sum() / (len(h) ** 2 - len(h)) + 1e-8
                    kernel = sum(torch.exp(-d / (b * f)) for f in (0.25, 0.5, 1, 2, 4))
                    n = len(x)
                    kt = (kernel[:n, :n] + kernel[n:, n:] - kernel[:n, n:] - kernel[n:, :n]).mean()
                return (1 - lam) * F.cross_entropy(net(x), y) + lam * kt

            train(net, batches[client.steps // 2 :], taught)
            if hpm is not None:
                mu = 0.9 * 1 / (1.0 * 2)  # one participation before this one; Q T = 2
                for new, old in zip(net.parameters(), hpm.parameters(), strict=True):
                    new.data = (1 - mu) * new.data + mu * old.data
            hpms[k] = net
        for p, *others in zip(server.parameters(), *(u.parameters() for u in uploads), strict=True):
            p.data = sum(o.data for o in others) / 3
    torch.testing.assert_close(weights(result.global_model), weights(server), rtol=1e-4, atol=1e-6)
    for k in range(3):
        torch.testing.assert_close(
            weights(result.personal_model(k)), weights(hpms[k]), rtol=1e-4, atol=1e-6
        )


def test_the_hpm_is_the_moving_average_of_five_participations_by_hand(three: Federation) -> None:
    # One of three clients is drawn each round, int(0.5 * 3), so 8 rounds ask each 8 / 3 times.
    client = Setup(Settings(rounds=8, fraction=0.5, net="tiny"), three).client(0, 1)
    model = Model(build("tiny", (6,), 4, 0))
    state, by_hand = no_hpm(model), 0.0
    for participation, value in enumerate([1.0, 5.0, 2.0, 8.0, 3.0]):
        model.vector.fill_(value)
        state = inherit(client, state, model, HPMParams(hpm_momentum=0.9))
        mu = min(0.9 * participation / (8 / 3), 1.0)
        by_hand = (1 - mu) * value + mu * by_hand
    torch.testing.assert_close(state["hpm"], torch.full_like(model.vector, by_hand))
    assert state["participations"] == 5


def test_momentum_is_limited_to_one(three: Federation) -> None:
    """A client selected far more often than expected keeps its HPM instead of moving past it."""
    client = Setup(Settings(rounds=1, fraction=1, net="tiny"), three).client(0, 1)
    model = Model(build("tiny", (6,), 4, 0))
    state = {"hpm": torch.ones_like(model.vector), "participations": number(50)}
    assert torch.equal(
        inherit(client, state, model, HPMParams())["hpm"], torch.ones_like(model.vector)
    )


@given(st.integers(5, 10_000))
def test_printed_stages_share_the_steps_in_halves_and_lose_none(steps: int) -> None:
    first, second = MAP(preset="printed").stages(steps)
    assert first == steps // 2
    assert second == max(steps - steps // 2, 5)


@given(st.integers(5, 10_000))
def test_released_stages_are_all_steps_and_a_tenth_more(steps: int) -> None:
    assert MAP(preset="released").stages(steps) == (steps, max(steps // 10, 5))


def test_a_preset_is_a_starting_point_for_given_values() -> None:
    method = MAP(preset="released", stage_two=0.3)
    assert (method.params.stage_one, method.params.stage_two, method.params.stage_two_lr) == (
        1.0,
        0.3,
        0.2,
    )
    with pytest.raises(
        fedmap.FedmapError,
        match="method map has no preset 'relaesed'; did you mean 'released'\\? there are: printed, released",
    ):
        MAP(preset="relaesed")


def test_a_client_that_never_took_part_still_gets_a_personal_model(federation: Federation) -> None:
    few = SETTINGS | {"rounds": 1, "fraction": 0.2}
    result = fedmap.run("map", federation, **few)
    (taken,) = [c["client"] for c in result.rounds[0]["clients"]]
    never = next(k for k in range(6) if k != taken)
    assert not torch.equal(weights(result.personal_model(never)), weights(result.global_model))
