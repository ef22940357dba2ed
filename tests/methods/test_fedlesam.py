"""FedLESAM: gradients a little uphill, along the way of the global model or of the batch."""

from typing import Any

import pytest
import torch
from tests.methods.conftest import World
from torch import Tensor, nn

from fedmap.check import check_method
from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedlesam import FedLESAM, same_statistics

RHO = 0.5


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("direction", ["global", "local"])
def test_without_distance_it_is_fedavg_to_the_bit(world: World, net: str, direction: str) -> None:
    ours = world.play(FedLESAM(rho=0, direction=direction), 3, net=net)
    assert world.same(ours, world.play(FedAvg(), 3, net=net))


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_the_first_round_is_fedavgs_to_the_bit(world: World, net: str) -> None:
    ours, fedavg = world.play(FedLESAM(), net=net), world.play(FedAvg(), net=net)
    assert world.same(ours[:1], fedavg[:1])
    assert not world.same(ours[1:], fedavg[1:])


def test_a_client_that_comes_later_has_no_way_in_its_first_round(world: World) -> None:
    ours, fedavg = (world.play(method, selected=[[0, 1], [2]]) for method in (FedLESAM(), FedAvg()))
    assert world.same(ours, fedavg)


def uphill(world: World, w: Tensor, way: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """A loss of w whose gradient is that of the cross-entropy at w + RHO way / |way|."""
    length = float(way.norm())
    shift = RHO * way / length if length else way
    return world.cross_entropy(w + shift, x, y)


def test_three_rounds_along_the_global_way_agree_with_the_formula(world: World) -> None:
    history = world.play(FedLESAM(rho=RHO), 3)
    downloads = [world.initial().vector]
    for round in (1, 2, 3):
        w = downloads[-1]
        way = downloads[-2] - w if round > 1 else torch.zeros_like(w)

        def loss(at: Tensor, x: Tensor, y: Tensor, way: Tensor = way) -> Tensor:
            return uphill(world, at, way, x, y)

        uploads = [world.sgd(w, world.batches(k, round), loss) for k in range(3)]
        for k in range(3):
            ours = history[round - 1].up[k]["model"]
            torch.testing.assert_close(ours, uploads[k], rtol=0, atol=1e-5)
        downloads.append(world.mean(uploads))


def test_two_rounds_along_the_batchs_gradient_agree_with_the_formula(world: World) -> None:
    history = world.play(FedLESAM(rho=RHO, direction="local"))
    w = world.initial().vector

    def loss(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        here = at.detach().clone().requires_grad_()
        (way,) = torch.autograd.grad(world.cross_entropy(here, x, y), here)
        return uphill(world, at, way, x, y)

    for round in (1, 2):
        w = world.mean(world.sgd(w, world.batches(k, round), loss) for k in range(3))
        torch.testing.assert_close(history[round - 1].server["model"], w, rtol=0, atol=1e-5)


def test_a_client_keeps_the_weights_that_it_downloaded_last(world: World) -> None:
    first, second = world.play(FedLESAM(), selected=[[0, 1], [1]], net="tiny-bn")
    weights = world.initial("tiny-bn").weight_count
    assert torch.equal(first.states[0]["old"], world.initial("tiny-bn").vector[:weights])
    assert torch.equal(second.states[1]["old"], first.server["model"][:weights])
    assert torch.equal(second.states[0]["old"], first.states[0]["old"])
    assert [int(second.states[k]["participations"]) for k in range(3)] == [1, 2, 0]


def test_along_the_batchs_gradient_nothing_is_kept(world: World) -> None:
    assert FedLESAM(direction="local").client_state(world.initial()) == {}


@pytest.mark.parametrize("direction", ["global", "local"])
def test_batch_norm_counts_every_batch_once(world: World, direction: str) -> None:
    method = FedLESAM(direction=direction)
    (only,) = world.play(method, 1, net="tiny-bn")
    (fedavg,) = world.play(FedAvg(), 1, net="tiny-bn")
    assert only.up[0]["model"][-1] == fedavg.up[0]["model"][-1] > 1  # the counter of batches


def test_inside_same_statistics_batch_norm_learns_nothing_but_answers_by_the_batch(
    world: World,
) -> None:
    model = world.initial("tiny-bn")
    model.net.train()
    x, _ = world.client(0, 1).train_data
    before = model.vector.clone()
    with same_statistics(model):
        inside = model(x)
    assert torch.equal(model.vector, before)
    assert torch.equal(inside, model(x))
    assert not torch.equal(model.vector, before)


def test_layers_that_keep_no_statistics_stay_so(world: World) -> None:
    model = world.initial("tiny-bn")
    norm = nn.BatchNorm1d(3, track_running_stats=False)
    model.net.add_module("more", norm)
    with same_statistics(model):
        pass
    assert not norm.track_running_stats


def test_only_the_model_moves(world: World) -> None:
    record = world.record("fedlesam")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"rho": -0.1}, {"direction": "up"}])
def test_a_parameter_outside_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedLESAM(**wrong)


def test_it_passes_the_battery_with_its_switch_too() -> None:
    check_method("fedlesam", direction="local")
