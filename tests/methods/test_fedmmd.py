import pytest
import torch
from tests.methods.conftest import World, models_taken
from torch import Tensor

from fedmap import FedmapError
from fedmap.losses import mmd
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedmmd import FedMMD


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_weight_it_is_fedavg_to_the_bit(world: World, net: str) -> None:
    assert world.same(world.play(FedMMD(weight=0), net=net), world.play(FedAvg(), net=net))


def test_two_rounds_agree_with_a_discrepancy_taken_pair_by_pair(world: World) -> None:
    w = world.initial().vector
    for round, played in enumerate(world.play(FedMMD(weight=2)), 1):

        def loss(w: Tensor, x: Tensor, y: Tensor, start: Tensor = w) -> Tensor:
            discrepancy = world.mmd(world.features(w, x), world.features(start, x))
            return world.cross_entropy(w, x, y) + 2 * discrepancy

        w = world.mean(world.sgd(w, world.batches(k, round), loss) for k in range(3))
        torch.testing.assert_close(played.server["model"], w, atol=1e-5, rtol=1e-4)


def test_the_download_is_seen_in_evaluation_mode_and_stays_as_it_was(world: World) -> None:
    down = {"model": world.initial("tiny-bn").vector}
    client = world.client(0, 1, "tiny-bn")
    taken = models_taken(client)
    loss = FedMMD(weight=1).local_loss(client, down, {})
    client.train(client.model(down["model"]), loss, 3)
    frozen, _ = taken
    assert not frozen.net.training
    assert torch.equal(frozen.vector, down["model"])


def test_features_that_hardly_differ_have_a_discrepancy_without_rounding_noise(
    world: World,
) -> None:
    rng = torch.Generator().manual_seed(0)
    h, other = (10 + 1e-3 * torch.rand(3, 64, generator=rng) for _ in range(2))
    torch.testing.assert_close(mmd(h, other), world.mmd(h, other), rtol=1e-3, atol=0)


def test_a_batch_of_one_sample_has_no_discrepancy() -> None:
    h = torch.ones(1, 8, requires_grad=True)
    value = mmd(h, torch.zeros(1, 8))
    (gradient,) = torch.autograd.grad(value, h)
    assert value == 0
    assert torch.equal(gradient, torch.zeros(1, 8))


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("fedmmd")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(FedmapError, match="weight"):
        FedMMD(weight=-1)
