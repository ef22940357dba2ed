import pytest
import torch
from tests.methods.conftest import World

from fedmap.methods import FedAvg


@pytest.mark.parametrize("selected", [[0, 1, 2], [0, 2]])
def test_two_rounds_are_local_sgd_and_the_mean_over_those_who_took_part(
    world: World, selected: list[int]
) -> None:
    w = world.initial().vector
    for round, played in enumerate(world.play(FedAvg(), selected=[selected] * 2), 1):
        trained = [world.sgd(w, world.batches(k, round), world.cross_entropy) for k in selected]
        for k, by_hand in zip(selected, trained, strict=True):
            torch.testing.assert_close(played.personal[k]["model"], by_hand)
        w = world.mean(trained)
        torch.testing.assert_close(played.server["model"], w)


def test_clients_keep_nothing(world: World) -> None:
    assert world.play(FedAvg())[-1].states == {0: {}, 1: {}, 2: {}}


def test_its_server_sees_no_sample(world: World) -> None:
    assert len(world.setup(FedAvg()).server(1).public) == 0
    assert "global_accuracy_unseen" not in world.record("fedavg")
