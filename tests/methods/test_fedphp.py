"""FedPHP: its limits, two equations, and what moves."""

import pytest
import torch
from tests.methods.conftest import World
from torch import Tensor

from fedmap import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedphp import FedPHP


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_with_weight_zero_its_global_model_is_fedavgs_to_the_bit(world: World, net: str) -> None:
    assert world.same(world.play(FedPHP(weight=0), 3, net=net), world.play(FedAvg(), 3, net=net))


def test_the_teacher_matters_only_from_the_second_participation_on(world: World) -> None:
    ours, fedavg = world.play(FedPHP(weight=0.5)), world.play(FedAvg())
    assert world.same(ours[:1], fedavg[:1])
    assert not world.same(ours[1:], fedavg[1:])


@pytest.mark.parametrize("transfer", ["kd", "mmd"])
def test_three_rounds_agree_with_eq_13_and_eq_10(world: World, transfer: str) -> None:
    w, hpms = world.initial().vector, dict[int, Tensor]()
    method = FedPHP(weight=0.3, transfer=transfer, hpm_momentum=0.6)
    for round, played in enumerate(world.play(method, 3), 1):
        uploads = []
        for k in range(3):
            hpm = hpms.get(k)

            def loss(w: Tensor, x: Tensor, y: Tensor, hpm: Tensor | None = hpm) -> Tensor:
                if hpm is None:
                    return world.cross_entropy(w, x, y)
                return world.taught(w, x, y, hpm, 0.3, transfer)

            uploads.append(world.sgd(w, world.batches(k, round), loss))
            mu = 0.6 * (round - 1) / 4  # Q T = 4 participations are expected
            hpms[k] = (1 - mu) * uploads[k] + mu * hpms.get(k, uploads[k])
            torch.testing.assert_close(played.personal[k]["model"], hpms[k], rtol=1e-4, atol=1e-5)
        w = world.mean(uploads)
        torch.testing.assert_close(played.server["model"], w, rtol=1e-4, atol=1e-5)


def test_a_client_keeps_its_hpm_from_its_first_participation_on(world: World) -> None:
    world.assert_kept(FedPHP())


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("fedphp")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize(
    "wrong", [{"weight": 1.1}, {"temperature": 0}, {"hpm_momentum": -0.1}, {"transfer": "all"}]
)
def test_values_out_of_range_are_refused(wrong: dict[str, float | str]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedPHP(**wrong)
