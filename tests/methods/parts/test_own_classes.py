"""A client whose training leaves missing classes free answers among its own."""

import pytest
import torch
from tests.methods.conftest import World

from fedmap.methods import METHODS

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
