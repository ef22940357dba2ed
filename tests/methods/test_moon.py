import pytest
import torch

from fedmap import FedmapError, run
from fedmap.losses import contrast
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.moon import MOON


def cosine(a, b):
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)).clamp_min(1e-12)


def reference_contrast(h, near, far, temperature):
    pull, push = torch.exp(cosine(h, near) / temperature), torch.exp(cosine(h, far) / temperature)
    return -torch.log(pull / (pull + push)).mean()


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_weight_it_is_fedavg_to_the_bit(world, net):
    assert world.same(world.play(MOON(weight=0), 3, net=net), world.play(FedAvg(), 3, net=net))


def test_two_rounds_agree_with_the_contrast_written_out(world):
    w = world.initial().vector
    previous = dict.fromkeys(range(3), w)
    for round, played in enumerate(world.play(MOON(weight=3, temperature=0.7)), 1):
        trained = {}
        for k in range(3):

            def loss(w, x, y, start=w, previous=previous[k]):
                near, far = world.features(start, x), world.features(previous, x)
                return world.cross_entropy(w, x, y) + 3 * reference_contrast(
                    world.features(w, x), near, far, 0.7
                )

            trained[k] = world.sgd(w, world.batches(k, round), loss)
        w, previous = sum(trained.values()) / 3, trained
        torch.testing.assert_close(played.server["model"], w, atol=1e-5, rtol=1e-4)


def test_the_first_round_is_fedavgs_because_both_references_are_the_initial_model(world):
    moon, fedavg = world.play(MOON(weight=1), 1)[0], world.play(FedAvg(), 1)[0]
    torch.testing.assert_close(moon.server["model"], fedavg.server["model"], atol=1e-6, rtol=0)


def test_a_client_keeps_the_model_that_it_trained_last(world):
    rounds = world.play(MOON(), 2, selected=[[0, 1, 2], [1]])
    assert torch.equal(rounds[1].states[0]["previous"], rounds[0].up[0]["model"])
    assert torch.equal(rounds[1].states[1]["previous"], rounds[1].up[1]["model"])
    assert not torch.equal(rounds[1].up[1]["model"], rounds[0].up[1]["model"])


def test_features_like_both_references_cost_log_two():
    h = torch.rand(5, 8, generator=torch.Generator().manual_seed(0))
    assert contrast(h, h, h, 0.5).item() == pytest.approx(0.6931472)
    assert contrast(h, h, -h, 0.5) < contrast(h, h, h, 0.5) < contrast(h, -h, h, 0.5)


def test_only_the_model_moves_each_way(world):
    result = run("moon", world.federation, net="tiny", rounds=1, fraction=1, epochs=1, seed=3)
    assert result.rounds[0]["bytes_down"] == result.rounds[0]["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"weight": -1}, {"temperature": 0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        MOON(**wrong)
