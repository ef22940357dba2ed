from typing import Any

import pytest
import torch
from tests.methods.conftest import World
from torch import Tensor

from fedmap import FedmapError
from fedmap.methods.map import MAP, MAPParams
from fedmap.methods.scamap import ScaMAP
from fedmap.methods.scars import ScaRS


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_the_hpms_stage_it_is_scars_to_the_bit(world: World, net: str) -> None:
    scamap = world.play(ScaMAP(alpha=0.5, stage_one=1, stage_two=0), 3, net=net)
    scars = world.play(ScaRS(alpha=0.5), 3, net=net)
    assert world.same(scamap, scars)
    assert torch.equal(scamap[-1].server["control"], scars[-1].server["control"])
    for k in range(3):
        assert torch.equal(scamap[-1].states[k]["control"], scars[-1].states[k]["control"])


def test_without_inheritance_either_its_personal_models_are_scars_too(world: World) -> None:
    scamap = world.play(ScaMAP(alpha=0.5, stage_one=1, stage_two=0, hpm_momentum=0), 2)[-1]
    scars = world.play(ScaRS(alpha=0.5), 2)[-1]
    for k in range(3):
        assert torch.equal(scamap.personal[k]["model"], scars.personal[k]["model"])


def test_the_variate_counts_the_steps_of_stage_one_alone(world: World) -> None:
    """Eight steps, four of them in stage one: the variate is the mean of these four gradients."""
    played = world.play(ScaMAP(alpha=1, preset="printed"), 1)[0]
    w = world.initial().vector
    gradients: list[Tensor] = []
    assert world.client(0, 1).steps == 8
    for x, y in world.batches(0, 1)[:4]:
        at = w.clone().requires_grad_()
        gradients += torch.autograd.grad(world.cross_entropy(at, x, y), at)
        w = w - 0.1 * gradients[-1]
    torch.testing.assert_close(played.up[0]["model"], w)
    control = played.states[0]["control"]
    torch.testing.assert_close(control, world.mean(gradients), atol=1e-5, rtol=1e-4)


def test_the_second_stage_and_the_hpm_are_maps(world: World) -> None:
    """From one and the same stage-one model, i.e. a client that takes no step there, both leave the
    same HPM, round after round."""
    given = {"stage_one": 0, "stage_two": 0.7, "stage_two_lr": 0.5, "weight": 0.3}
    ours, maps = world.play(ScaMAP(**given), 3), world.play(MAP(**given), 3)
    for one, other in zip(ours, maps, strict=True):
        for k in range(3):
            assert torch.equal(one.states[k]["hpm"], other.states[k]["hpm"])
            assert one.states[k]["participations"] == other.states[k]["participations"]
            assert torch.equal(one.personal[k]["model"], one.states[k]["hpm"])


def test_a_stage_one_without_steps_leaves_the_variates_alone(world: World) -> None:
    played = world.play(ScaMAP(stage_one=0), 1)[0]
    assert torch.equal(played.server["control"], torch.zeros(88))


def test_the_second_stage_reaches_nothing_that_is_uploaded(world: World) -> None:
    short, long = (
        world.play(ScaMAP(stage_one=0.5, stage_two=share, weight=0.5), 2)[-1] for share in (0.5, 2)
    )
    assert torch.equal(short.server["model"], long.server["model"])
    assert torch.equal(short.server["control"], long.server["control"])
    assert not torch.equal(short.states[0]["hpm"], long.states[0]["hpm"])


def test_a_client_keeps_its_hpm_from_its_first_participation_on(world: World) -> None:
    world.assert_kept(ScaMAP())


def test_a_variate_travels_beside_the_model_and_the_hpm_stays(world: World) -> None:
    record = world.record("scamap")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 4 * 2 * 88


def test_its_released_schedule_differs_from_maps() -> None:
    printed: MAP[MAPParams] = MAP(preset="printed")
    assert ScaMAP(preset="printed").params.stage_two == printed.params.stage_two
    released = ScaMAP(preset="released").params
    assert (released.stage_one, released.stage_two, released.stage_two_lr) == (1.0, 0.2, 0.5)


@pytest.mark.parametrize(
    "wrong",
    [{"alpha": 2}, {"server_lr": 1.01}, {"weight": -0.1}, {"stage_two": -1}, {"preset": "other"}],
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        ScaMAP(**wrong)
