import pytest
import torch

from fedmap import FedmapError, run
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.feddyn import FedDyn


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_a_regularizer_it_is_fedavg_to_the_bit(world, net):
    assert world.same(world.play(FedDyn(alpha=0), 3, net=net), world.play(FedAvg(), 3, net=net))


def test_as_alpha_vanishes_clients_train_as_fedavgs_from_the_same_download(world):
    """The limit holds for the client half alone: the server's correction does not depend on alpha."""
    ours, fedavgs = world.play(FedDyn(alpha=1e-30), 1)[0], world.play(FedAvg(), 1)[0]
    assert all(torch.equal(ours.up[k]["model"], fedavgs.up[k]["model"]) for k in range(3))
    step = fedavgs.server["model"] - world.initial().vector
    torch.testing.assert_close(ours.server["model"], fedavgs.server["model"] + step)


def test_three_rounds_agree_with_algorithm_1_of_the_paper(world):
    """In the paper's own variables: grad_k on the clients and h on the server, where client 1
    misses the second round."""
    alpha, selected = 0.3, [[0, 1, 2], [0, 2], [1, 2]]
    w, h, grad = world.initial().vector, torch.zeros(88), dict.fromkeys(range(3), torch.zeros(88))
    for round, played in enumerate(world.play(FedDyn(alpha=alpha), 3, selected=selected), 1):
        trained = {}
        for k in selected[round - 1]:

            def loss(w, x, y, start=w, grad=grad[k]):
                return (
                    world.cross_entropy(w, x, y) - grad @ w + alpha / 2 * (w - start).square().sum()
                )

            trained[k] = world.sgd(w, world.batches(k, round), loss)
            grad[k] = grad[k] - alpha * (trained[k] - w)
        h = h - alpha / 3 * sum(one - w for one in trained.values())
        w = sum(trained.values()) / len(trained) - h / alpha
        torch.testing.assert_close(played.server["model"], w, atol=1e-5, rtol=1e-4)


def test_the_server_knows_the_mean_of_all_clients_drifts_without_seeing_one(world):
    last = world.play(FedDyn(), 3, selected=[[0, 1], [2], [0, 2]])[-1]
    torch.testing.assert_close(
        last.server["drift"], sum(last.states[k]["drift"] for k in range(3)) / 3
    )
    assert last.server["drift"].abs().max() > 0.01
    assert set(last.up[0]) == {"model"}


def test_statistics_of_batch_norm_are_averaged_and_not_corrected(world):
    played = world.play(FedDyn(), 2, net="tiny-bn")[-1]
    count = world.initial("tiny-bn").weight_count
    means = sum(played.up[k]["model"][count:] for k in range(3)) / 3
    torch.testing.assert_close(played.server["model"][count:], means)


def test_only_the_model_moves_each_way(world):
    result = run("feddyn", world.federation, net="tiny", rounds=1, fraction=1, epochs=1, seed=3)
    assert result.rounds[0]["bytes_down"] == result.rounds[0]["bytes_up"] == 3 * 88 * 4


def test_a_negative_alpha_is_refused():
    with pytest.raises(FedmapError, match="alpha"):
        FedDyn(alpha=-1)
