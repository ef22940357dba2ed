import pytest
import torch

from fedmap import FedmapError, run
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedprox import FedProx
from fedmap.methods.parts.proximal import pull_towards


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_a_pull_it_is_fedavg_to_the_bit(world, net):
    assert world.same(world.play(FedProx(mu=0), net=net), world.play(FedAvg(), net=net))


def test_two_rounds_agree_with_the_squared_distance_differentiated_by_torch(world):
    mu, w = 0.5, world.initial().vector
    for round, played in enumerate(world.play(FedProx(mu=mu)), 1):

        def loss(w, x, y, start=w):
            return world.cross_entropy(w, x, y) + mu / 2 * (w - start).square().sum()

        w = sum(world.sgd(w, world.batches(k, round), loss) for k in range(3)) / 3
        torch.testing.assert_close(played.server["model"], w)


def test_a_stronger_pull_keeps_clients_nearer_to_the_download(world):
    start = world.initial().vector
    distances = [
        (world.play(FedProx(mu=mu), 1)[0].up[2]["model"] - start).norm() for mu in (0, 0.1, 1)
    ]
    assert distances[0] > distances[1] > distances[2]


def test_statistics_of_batch_norm_are_not_pulled(world):
    model = world.initial("tiny-bn")
    model.vector.add_(1)
    model.grads.zero_()
    before = model.buffers.clone()
    pull_towards(world.initial("tiny-bn").vector, 0.5)(model)
    torch.testing.assert_close(model.grads, torch.full_like(model.grads, 0.5))
    assert torch.equal(model.buffers, before)


def test_only_the_model_moves_each_way(world):
    result = run("fedprox", world.federation, net="tiny", rounds=1, fraction=1, epochs=1, seed=3)
    assert result.rounds[0]["bytes_down"] == result.rounds[0]["bytes_up"] == 3 * 88 * 4


def test_a_push_away_is_refused():
    with pytest.raises(FedmapError, match="mu"):
        FedProx(mu=-0.1)
