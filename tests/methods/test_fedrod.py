"""FedROD: a generic head trained with the balanced softmax, and a personal one that stays."""

import pytest
import torch
import torch.nn.functional as F

from fedmap.errors import FedmapError
from fedmap.losses import balanced_shift
from fedmap.methods import Method
from fedmap.methods.fedrod import FedROD


@pytest.mark.parametrize("gamma", [1, 0.25])
def test_two_rounds_agree_with_the_formula(world, gamma):
    history = world.play(FedROD(gamma=gamma))
    w = world.initial().vector
    heads = {k: torch.zeros(32) for k in range(3)}
    for round in (1, 2):
        uploads = []
        for k in range(3):
            n = world.federation.counts[k].double()
            has = n > 0

            def loss(both, x, y, has=has, n=n):
                g, h = world.logits(both[:88], x), world.features(both[:88], x)
                balanced = (
                    torch.exp(g.double()) * n.pow(gamma) * has
                )  # the softmax by its definition, in odds
                generic = -(balanced[torch.arange(len(y)), y] / balanced.sum(1)).log().mean()
                p = g.detach() + h.detach() @ both[88:].view(4, 8).T
                return generic + F.cross_entropy(p, y)

            both = world.sgd(torch.cat([w, heads[k]]), world.batches(k, round), loss)
            assert torch.allclose(history[round - 1].up[k]["model"], both[:88], atol=1e-5)
            assert torch.allclose(
                history[round - 1].states[k]["head"].flatten(), both[88:], atol=1e-5
            )
            heads[k] = both[88:]
            uploads.append(both[:88])
        w = torch.stack(uploads).mean(0)
        assert torch.allclose(history[round - 1].server["model"], w, atol=1e-5)


def test_personal_heads_leave_no_trace_in_the_global_model(world):
    class Balanced(Method):
        """FedAvg with the balanced softmax and nothing else."""

        def local_loss(self, client, down, state):
            return lambda model, x, y: F.cross_entropy(
                model(x) + balanced_shift(client.counts, 1), y
            )

    assert world.same(world.play(FedROD()), world.play(Balanced()))


@pytest.mark.parametrize("gamma", [1, 0.5, 0])
def test_proxies_of_missing_classes_do_not_move(world, gamma):
    (only,) = world.play(FedROD(gamma=gamma), 1, weight_decay=0)
    moved = (only.up[0]["model"] != world.initial().vector)[56:].view(4, 8).any(1)
    assert moved.tolist() == [True, True, False, False]  # client 0 has the classes 0 and 1


def test_the_balanced_shift_is_the_logarithm_of_the_counts_and_masks_what_is_missing():
    shift = balanced_shift(torch.tensor([1, 0, 10]), 0.5)
    assert torch.allclose(shift, torch.tensor([0, -torch.inf, 0.5 * torch.tensor(10.0).log()]))
    assert torch.equal(
        balanced_shift(torch.tensor([1, 0, 10]), 0), torch.tensor([0, -torch.inf, 0])
    )


def test_a_client_predicts_with_the_sum_of_both_heads(world):
    method = FedROD()
    personal = world.play(method, 1)[0].personal[1]
    x, _ = world.client(1, 1).test_data
    h = world.features(personal["model"], x)
    expected = world.logits(personal["model"], x) + h @ personal["head"].T
    assert torch.allclose(method.predictor(world.models(), personal)(x), expected, atol=1e-6)


def test_before_a_client_has_trained_it_predicts_like_the_global_model(world):
    method = FedROD()
    down = method.download(method.start(world.initial()))
    personal = method.downloaded(down, method.client_state(world.initial()))
    x, _ = world.client(0, 1).test_data
    assert torch.equal(method.predictor(world.models(), personal)(x), world.initial()(x))


def test_batch_norm_nets_work(world):
    (only,) = world.play(FedROD(), 1, net="tiny-bn")
    count = world.initial("tiny-bn").weight_count
    assert torch.isfinite(only.server["model"]).all()
    assert not torch.equal(only.server["model"][count:], world.initial("tiny-bn").buffers)


def test_personal_heads_stay(world):
    method = FedROD()
    (only,) = world.play(method, 1)
    assert only.up[0].keys() == method.download(only.server).keys() == {"model"}
    assert only.up[0]["model"].shape == (88,)
    assert only.states[0]["head"].any()


def test_a_negative_gamma_is_refused():
    with pytest.raises(FedmapError, match=r"method fedrod: gamma is -1"):
        FedROD(gamma=-1)
