"""Ditto: FedAvg beside personal models that are pulled towards the global one."""

import pytest
import torch
from tests.methods.conftest import World
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.methods.ditto import Ditto, DittoParams
from fedmap.methods.fedavg import FedAvg


@pytest.mark.parametrize("weight", [0, 0.1, 5])
def test_the_global_model_is_fedavgs_to_the_bit_for_every_lambda(
    world: World, weight: float
) -> None:
    assert world.same(world.play(Ditto(weight=weight), rounds=3), world.play(FedAvg(), rounds=3))


def test_with_lambda_0_a_personal_model_is_trained_on_the_clients_own_data_alone(
    world: World,
) -> None:
    history = world.play(Ditto(weight=0))
    v = world.initial().vector
    for round in (1, 2):
        steps = world.client(0, round).steps
        v = world.sgd(v, world.batches(0, round, 2 * steps)[steps:], world.cross_entropy)
        assert torch.allclose(history[round - 1].personal[0]["model"], v, atol=1e-6)


def test_with_lambda_0_other_clients_do_not_matter(world: World) -> None:
    alone = world.play(Ditto(weight=0), selected=[[0], [0]])
    together = world.play(Ditto(weight=0), selected=[[0, 1, 2], [0, 1]])
    assert torch.equal(alone[1].personal[0]["model"], together[1].personal[0]["model"])


def test_personal_models_agree_with_the_formula(world: World) -> None:
    strength = 0.7
    history = world.play(Ditto(weight=strength))
    w = world.initial().vector
    own = dict.fromkeys(range(3), w)
    for round in (1, 2):
        uploads = []
        for k in range(3):
            batches = world.batches(k, round, 2 * world.client(k, round).steps)
            half = len(batches) // 2
            uploads.append(world.sgd(w, batches[:half], world.cross_entropy))

            def loss(v: Tensor, x: Tensor, y: Tensor, w: Tensor = w) -> Tensor:
                return world.cross_entropy(v, x, y) + strength / 2 * (v - w).square().sum()

            own[k] = world.sgd(own[k], batches[half:], loss)
            assert torch.allclose(history[round - 1].personal[k]["model"], own[k], atol=1e-6)
        w = world.mean(uploads)


def test_statistics_of_batch_norm_are_not_pulled(world: World) -> None:
    method: Ditto[DittoParams] = Ditto(weight=1)
    net = "tiny-bn"
    down, state = method.start(world.initial(net)), method.client_state(world.initial(net))
    shifted = {"model": down["model"].clone()}
    shifted["model"][world.initial(net).weight_count :] += 1
    kept, other = (
        method.local_round(world.client(0, 1, net), d, state).personal["model"]
        for d in (down, shifted)
    )
    assert torch.equal(kept, other)


def test_a_client_keeps_its_model_from_its_first_participation_on(world: World) -> None:
    world.assert_kept(Ditto())


def test_only_fedavgs_model_moves(world: World) -> None:
    (only,) = world.play(Ditto(), 1)
    assert only.up[0].keys() == Ditto().download(only.server).keys() == {"model"}
    assert only.up[0]["model"].shape == (88,)
    assert not torch.equal(only.up[0]["model"], only.personal[0]["model"])


def test_a_negative_lambda_is_refused() -> None:
    with pytest.raises(FedmapError, match=r"method ditto: weight is -0\.1"):
        Ditto(weight=-0.1)
