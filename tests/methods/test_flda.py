"""FLDA: a shared and a private model mixed by a gate."""

import pytest
import torch
from tests.methods.conftest import World, models_taken, present
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.methods.flda import FLDA
from fedmap.values import Values

SHARED, PRIVATE, GATE = slice(0, 88), slice(88, 176), slice(176, 185)


def in_one(personal: Values) -> Tensor:
    return torch.cat([personal[part] for part in ("model", "private", "gate")])


def mixed(world: World, all_three: Tensor, x: Tensor) -> Tensor:
    gate = all_three[GATE]
    a = 1 / (1 + torch.exp(-(world.features(all_three[SHARED], x) @ gate[:8] + gate[8])))[:, None]
    shared, private = (world.logits(all_three[part], x) for part in (SHARED, PRIVATE))
    return a * shared + (1 - a) * private


@pytest.mark.parametrize("clip", [None, 0.3])
def test_two_rounds_agree_with_the_formula(world: World, clip: float | None) -> None:
    """The clip holds for the gradient of all three parts as one vector."""
    method = FLDA()
    history = world.play(method, clip=clip)
    w = world.initial().vector
    state = method.client_state(world.initial())
    private = {k: torch.cat([state["private"], state["gate"]]) for k in range(3)}

    def loss(all_three: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -torch.log_softmax(mixed(world, all_three, x), 1)[torch.arange(len(y)), y].mean()

    for round in (1, 2):
        shared = []
        for k in range(3):
            start = torch.cat([w, private[k]])
            trained = world.sgd(start, world.batches(k, round), loss, clip=clip)
            assert torch.allclose(in_one(history[round - 1].personal[k]), trained, atol=1e-6)
            private[k] = trained[88:]
            shared.append(trained[SHARED])
        w = world.mean(shared)
        assert torch.allclose(history[round - 1].server["model"], w, atol=1e-6)


def test_a_client_predicts_with_the_mixture(world: World) -> None:
    method = FLDA()
    personal = world.play(method, 1)[0].personal[1]
    x, _ = world.client(1, 1).test_data
    logits = method.predictor(world.models(), personal)(x)
    assert torch.allclose(logits, mixed(world, in_one(personal), x), atol=1e-6)


@pytest.mark.parametrize(("bias", "which"), [(100.0, "model"), (-100.0, "private")])
def test_the_gate_chooses_between_the_two(world: World, bias: float, which: str) -> None:
    method = FLDA()
    down, state = method.start(world.initial()), method.client_state(world.initial())
    personal = present(method.downloaded(down, state))
    personal["gate"] = torch.tensor([0.0] * 8 + [bias])
    x, _ = world.client(0, 1).test_data
    logits = method.predictor(world.models(), personal)(x)
    assert torch.allclose(logits, world.logits(personal[which], x), atol=1e-6)


def test_the_private_model_starts_as_another_draw_that_all_clients_share(world: World) -> None:
    model = world.initial()
    private, again = (FLDA().client_state(model)["private"] for _ in range(2))
    assert torch.equal(private, again)
    assert (private != model.vector).float().mean() > 0.9
    for name, part in model.named(model.vector).items():
        drawn = model.named(private)[name]
        assert torch.equal(drawn.flatten().sort().values, part.flatten().sort().values)


def test_the_private_model_has_statistics_of_its_own(world: World) -> None:
    method, net = FLDA(), "tiny-bn"
    (only,) = world.play(method, 1, net=net)
    count = world.initial(net).weight_count
    private, shared = only.states[0]["private"][count:], only.up[0]["model"][count:]
    assert not torch.equal(private, world.initial(net).buffers)
    assert not torch.equal(private, shared)


def test_working_models_are_left_in_evaluation_mode(world: World) -> None:
    method, client, initial = FLDA(), world.client(0, 1, "tiny-bn"), world.initial("tiny-bn")
    taken = models_taken(client)
    method.local_round(client, method.start(initial), method.client_state(initial))
    assert [model.net.training for model in taken] == [False, False]


def test_only_the_shared_model_moves_and_it_alone_is_the_global_model(world: World) -> None:
    method = FLDA()
    (only,) = world.play(method, 1)
    assert only.up[0].keys() == method.download(only.server).keys() == {"model"}
    assert present(method.global_model(only.server)).shape == (88,)


def test_it_has_no_parameters() -> None:
    with pytest.raises(FedmapError, match="method flda has no parameter 'weight'"):
        FLDA(weight=1)
