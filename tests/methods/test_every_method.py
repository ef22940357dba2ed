"""What holds for every method, beside the battery of `check_method`."""

import pytest
import torch
from tests.methods.conftest import World

from fedmap.methods import METHODS
from fedmap.values import Values


def copied(values: Values) -> Values:
    return {name: value.clone() for name, value in values.items()}


def same(one: Values, other: Values) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one | other)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_both_halves_start_from_is_no_view_of_the_initial_model(
    world: World, name: str
) -> None:
    method, model = METHODS[name](), world.initial("tiny-bn")
    for values in (method.client_state(model), method.start(model)):
        before = copied(values)
        model.vector.add_(1)
        assert same(values, before)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_what_a_local_round_leaves_is_no_view_of_a_working_model(world: World, name: str) -> None:
    method, setup = METHODS[name](), world.setup(net="tiny-bn")
    down = method.download(method.start(setup.initial))
    local = method.local_round(setup.client(0, 1), down, method.client_state(setup.initial))
    before = [copied(values) for values in local]
    setup.models.release()
    for _ in range(4):  # more than any method takes
        setup.models.model(torch.zeros_like(setup.initial.vector))
    assert all(same(values, kept) for values, kept in zip(local, before, strict=True))
