"""Local: every client trains alone."""

import torch
from tests.methods.conftest import World

from fedmap.methods.local import Local


def test_a_clients_model_is_sgd_on_its_own_batches_from_where_it_was(world: World) -> None:
    history = world.play(Local())
    own = dict.fromkeys(range(3), world.initial().vector)
    for round in (1, 2):
        for k in range(3):
            own[k] = world.sgd(own[k], world.batches(k, round), world.cross_entropy)
            assert torch.allclose(history[round - 1].personal[k]["model"], own[k], atol=1e-6)


def test_a_client_that_is_absent_keeps_its_model(world: World) -> None:
    world.assert_kept(Local())


def test_other_clients_do_not_matter(world: World) -> None:
    alone = world.play(Local(), selected=[[0], [0]])
    together = world.play(Local(), selected=[[0, 1, 2], [0, 1]])
    assert torch.equal(alone[1].personal[0]["model"], together[1].personal[0]["model"])


def test_nothing_moves_and_there_is_no_global_model(world: World) -> None:
    (only,) = world.play(Local(), 1)
    assert only.up[0] == only.server == Local().download(only.server) == {}
    assert Local().global_model(only.server) is None
    record = world.record("local")
    assert (record["bytes_down"], record["bytes_up"], record["global_accuracy"]) == (0, 0, None)
