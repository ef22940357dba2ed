"""FLDA: a shared and a private model mixed by a gate."""

import pytest
import torch

from fedmap.errors import FedmapError
from fedmap.methods.flda import FLDA

SHARED, PRIVATE, GATE = slice(0, 88), slice(88, 176), slice(176, 185)


def mixed(world, all_three, x):
    gate = all_three[GATE]
    a = 1 / (1 + torch.exp(-(world.features(all_three[SHARED], x) @ gate[:8] + gate[8])))
    return a[:, None] * world.logits(all_three[SHARED], x) + (1 - a[:, None]) * world.logits(
        all_three[PRIVATE], x
    )


def test_two_rounds_agree_with_the_formula(world):
    method = FLDA()
    history = world.play(method)
    w = world.initial().vector
    start = method.client_state(world.initial())
    private = {k: torch.cat([start["private"], start["gate"]]) for k in range(3)}

    def loss(all_three, x, y):
        return -torch.log_softmax(mixed(world, all_three, x), 1)[torch.arange(len(y)), y].mean()

    for round in (1, 2):
        shared = []
        for k in range(3):
            trained = world.sgd(torch.cat([w, private[k]]), world.batches(k, round), loss)
            personal = history[round - 1].personal[k]
            assert torch.allclose(
                torch.cat([personal["model"], personal["private"], personal["gate"]]),
                trained,
                atol=1e-6,
            )
            private[k] = trained[88:]
            shared.append(trained[SHARED])
        w = torch.stack(shared).mean(0)
        assert torch.allclose(history[round - 1].server["model"], w, atol=1e-6)


def test_a_client_predicts_with_the_mixture(world):
    method = FLDA()
    personal = world.play(method, 1)[0].personal[1]
    x, _ = world.client(1, 1).test_data
    logits = method.predictor(world.models(), personal)(x)
    assert torch.allclose(
        logits,
        mixed(world, torch.cat([personal[n] for n in ("model", "private", "gate")]), x),
        atol=1e-6,
    )


@pytest.mark.parametrize(("bias", "which"), [(100.0, "model"), (-100.0, "private")])
def test_the_gate_chooses_between_the_two(world, bias, which):
    method = FLDA()
    personal = method.downloaded(
        method.start(world.initial()), method.client_state(world.initial())
    )
    personal["gate"] = torch.tensor([0.0] * 8 + [bias])
    x, _ = world.client(0, 1).test_data
    assert torch.allclose(
        method.predictor(world.models(), personal)(x), world.logits(personal[which], x), atol=1e-6
    )


def test_the_private_model_starts_as_another_draw_that_all_clients_share(world):
    model = world.initial()
    private, again = (FLDA().client_state(model)["private"] for _ in range(2))
    assert torch.equal(private, again)
    assert (private != model.vector).float().mean() > 0.9
    for one, other in zip(
        model.named(private).values(), model.named(model.vector).values(), strict=True
    ):
        assert torch.equal(one.flatten().sort().values, other.flatten().sort().values)


def test_the_private_model_has_statistics_of_its_own(world):
    method, net = FLDA(), "tiny-bn"
    (only,) = world.play(method, 1, net=net)
    count = world.initial(net).weight_count
    private, shared = only.states[0]["private"][count:], only.up[0]["model"][count:]
    assert not torch.equal(private, world.initial(net).buffers)
    assert not torch.equal(private, shared)


def test_working_models_are_left_in_evaluation_mode(world):
    method, client, taken = FLDA(), world.client(0, 1, "tiny-bn"), []
    lend = client.model
    client.model = lambda vector: taken.append(lend(vector)) or taken[-1]
    method.local_round(
        client,
        method.start(world.initial("tiny-bn")),
        method.client_state(world.initial("tiny-bn")),
    )
    assert [model.net.training for model in taken] == [False, False]


def test_only_the_shared_model_moves_and_it_alone_is_the_global_model(world):
    method = FLDA()
    (only,) = world.play(method, 1)
    assert only.up[0].keys() == method.download(only.server).keys() == {"model"}
    assert method.global_model(only.server).shape == (88,)


def test_it_has_no_parameters():
    with pytest.raises(FedmapError, match="method flda has no parameter 'weight'"):
        FLDA(weight=1)
