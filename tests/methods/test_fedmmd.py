import pytest
import torch

from fedmap import FedmapError, run
from fedmap.losses import mmd
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedmmd import FedMMD


def reference_mmd(a, b):
    both = torch.cat([a, b])
    squared = (both[:, None] - both[None]).square().sum(2)
    bandwidth = float(squared.detach().sum()) / (len(both) * (len(both) - 1)) + 1e-8
    signs = torch.cat([torch.full((len(a),), 1 / len(a)), torch.full((len(b),), -1 / len(b))])
    return sum(
        signs @ torch.exp(-squared / (bandwidth * 2.0**i)) @ signs for i in (-2, -1, 0, 1, 2)
    )


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_weight_it_is_fedavg_to_the_bit(world, net):
    assert world.same(world.play(FedMMD(weight=0), net=net), world.play(FedAvg(), net=net))


def test_two_rounds_agree_with_a_discrepancy_taken_pair_by_pair(world):
    w = world.initial().vector
    for round, played in enumerate(world.play(FedMMD(weight=2)), 1):

        def loss(w, x, y, start=w):
            return world.cross_entropy(w, x, y) + 2 * reference_mmd(
                world.features(w, x), world.features(start, x)
            )

        w = sum(world.sgd(w, world.batches(k, round), loss) for k in range(3)) / 3
        torch.testing.assert_close(played.server["model"], w, atol=1e-5, rtol=1e-4)


def test_the_weight_keeps_features_near_the_download(world):
    start = world.initial().vector
    x, _ = world.client(0, 1).train_data
    ups = [world.play(FedMMD(weight=weight), 1)[0].up[0]["model"] for weight in (0, 10)]
    free, held = (reference_mmd(world.features(w, x), world.features(start, x)) for w in ups)
    assert held < free


def test_the_download_is_seen_in_evaluation_mode_and_stays_as_it_was(world):
    client, down = world.client(0, 1, "tiny-bn"), {"model": world.initial("tiny-bn").vector}
    loss = FedMMD(weight=1).local_loss(client, down, {})
    frozen = client.model.__self__._models[0]
    model = client.model(down["model"])
    client.train(model, loss, 3)
    assert not frozen.net.training
    assert torch.equal(frozen.vector, down["model"])


def test_features_that_hardly_differ_have_a_discrepancy_without_rounding_noise():
    rng = torch.Generator().manual_seed(0)
    h, other = (10 + 1e-3 * torch.rand(3, 64, generator=rng) for _ in range(2))
    torch.testing.assert_close(mmd(h, other), reference_mmd(h, other), rtol=1e-3, atol=0)


def test_a_batch_of_one_sample_has_no_discrepancy():
    h = torch.ones(1, 8, requires_grad=True)
    value = mmd(h, torch.zeros(1, 8))
    value.backward()
    assert value == 0
    assert torch.equal(h.grad, torch.zeros(1, 8))


def test_only_the_model_moves_each_way(world):
    result = run("fedmmd", world.federation, net="tiny", rounds=1, fraction=1, epochs=1, seed=3)
    assert result.rounds[0]["bytes_down"] == result.rounds[0]["bytes_up"] == 3 * 88 * 4


def test_a_negative_weight_is_refused():
    with pytest.raises(FedmapError, match="weight"):
        FedMMD(weight=-1)
