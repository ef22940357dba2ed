import pytest
import torch

from fedmap import FedmapError, run
from fedmap.methods.fedrs import FedRS
from fedmap.methods.scaffold import Scaffold
from fedmap.methods.scars import ScaRS


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_with_the_ordinary_softmax_it_is_scaffold_to_the_bit(world, net):
    scars, scaffold = (
        world.play(ScaRS(alpha=1, server_lr=0.8), 3, net=net),
        world.play(Scaffold(server_lr=0.8), 3, net=net),
    )
    assert world.same(scars, scaffold)
    assert torch.equal(scars[-1].server["control"], scaffold[-1].server["control"])


def test_the_first_round_is_fedrs_with_plain_sgd_to_the_bit(world):
    assert world.same(
        world.play(ScaRS(alpha=0.3), 1), world.play(FedRS(alpha=0.3), 1, momentum=0, weight_decay=0)
    )


def test_two_rounds_agree_with_scaffold_on_scaled_logits(world):
    scale = [
        torch.tensor(observed)
        for observed in ([1, 1, 0.5, 0.5], [0.5, 1, 1, 0.5], [0.5, 0.5, 0.5, 1])
    ]
    x, c, c_k = world.initial().vector, torch.zeros(88), [torch.zeros(88)] * 3
    for round, played in enumerate(world.play(ScaRS(alpha=0.5, server_lr=0.9)), 1):
        trained, kept = [], []
        for k in range(3):

            def loss(w, data, y, k=k, shift=c - c_k[k]):
                return (
                    -torch.log_softmax(world.logits(w, data) * scale[k], 1)[
                        torch.arange(len(y)), y
                    ].mean()
                    + shift @ w
                )

            batches = world.batches(k, round)
            trained.append(world.sgd(x, batches, loss, momentum=0, decay=0))
            kept.append(c_k[k] - c + (x - trained[k]) / (0.1 * len(batches)))
        x, c, c_k = x + 0.9 * (sum(trained) / 3 - x), sum(kept) / 3, kept
        torch.testing.assert_close(played.server["model"], x, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(played.server["control"], c, atol=1e-5, rtol=1e-4)


def test_a_variate_travels_beside_the_model_each_way(world):
    record = run(
        "scars", world.federation, net="tiny", rounds=1, fraction=1, epochs=1, seed=3
    ).rounds[0]
    assert record["bytes_down"] == record["bytes_up"] == 3 * 4 * 2 * 88


@pytest.mark.parametrize("wrong", [{"alpha": 1.1}, {"alpha": -0.1}, {"server_lr": 0}])
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        ScaRS(**wrong)
