"""A client whose training leaves missing classes free answers among its own."""

from dataclasses import replace

import pytest
import torch
from tests.methods.conftest import World

from fedmap.client import Client
from fedmap.methods import METHODS, variant

FREE = ["fedlc", "fedvls"]


@pytest.mark.parametrize("name", FREE)
def test_a_clients_own_model_answers_among_its_own_classes(world: World, name: str) -> None:
    method = METHODS[name]()
    personal = world.play(method, 1)[0].personal[1]
    x = world.federation.test_x
    expected = world.logits(personal["model"], x)
    expected[:, [0, 3]] = -torch.inf  # client 1 has the classes 1 and 2
    with torch.no_grad():
        found = method.predictor(world.models(), personal)(x)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", FREE)
def test_without_own_it_answers_among_all(world: World, name: str) -> None:
    method = METHODS[name](own=False)
    personal = world.play(method, 1)[0].personal[1]
    assert personal.keys() == {"model"}
    x = world.federation.test_x
    with torch.no_grad():
        found = method.predictor(world.models(), personal)(x)
    torch.testing.assert_close(found, world.logits(personal["model"], x))


def with_stricter_data(world: World, observed_from: int) -> Client:
    """Client 1, whose classes count as observed from so many samples on, as FEMNIST's do."""
    data = world.federation.client(1)
    data = replace(data, observed=data.counts >= observed_from, observed_from=observed_from)
    return Client(data, 1, world.training, 1, world.models(), 1.0)


@pytest.mark.parametrize("name", [*FREE, "fedgela[loss=etf]", "map[preset=own]"])
def test_a_class_with_few_samples_may_be_the_answer(world: World, name: str) -> None:
    label, params = variant(name)
    method = METHODS[label](**params)
    client = with_stricter_data(world, 10**6)
    assert not client.observed.any()
    down = method.start(world.initial())
    local = method.local_round(client, down, method.client_state(world.initial()))
    assert local.personal["own"].tolist() == [False, True, True, False]
    answers = client.answers(method.predictor(world.models(), local.personal))
    assert answers.own.tolist() == [False, True, True, False]
    assert answers.logits.isfinite().any(1).all()
    assert answers.accuracy_observed == answers.accuracy > 0
