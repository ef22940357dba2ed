"""pFedMe: personal models near a reference, which is averaged."""

from typing import Any

import pytest
import torch
from tests.methods.conftest import World
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.pfedme import pFedMe


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_one_inner_step_without_pull_and_a_reference_that_follows_wholly_is_fedavg_with_plain_sgd(
    world: World, net: str
) -> None:
    limit = world.play(pFedMe(weight=0, alpha=1, inner_steps=1), rounds=3, net=net)
    assert world.same(limit, world.play(FedAvg(), rounds=3, net=net, momentum=0))
    assert torch.equal(limit[2].personal[0]["model"], limit[2].up[0]["model"])


def test_a_reference_that_does_not_follow_leaves_the_global_model_where_it_is(world: World) -> None:
    initial = world.initial().vector
    (only,) = world.play(pFedMe(alpha=0), 1)
    assert torch.equal(only.up[0]["model"], initial)
    assert torch.allclose(only.server["model"], initial)
    assert not torch.equal(only.personal[0]["model"], initial)


def test_a_server_that_does_not_go_stays(world: World) -> None:
    (only,) = world.play(pFedMe(beta=0), 1)
    assert torch.equal(only.server["model"], world.initial().vector)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_two_rounds_agree_with_the_formula(world: World, clip: float | None) -> None:
    """The clip holds for the gradient with the pull in it."""
    method = pFedMe(weight=0.5, alpha=0.3, inner_steps=3, beta=1.5)
    history = world.play(method, clip=clip)
    w = world.initial().vector
    for round in (1, 2):
        references = []
        for k in range(3):
            theta = reference = w
            for batch in world.batches(k, round):

                def envelope(
                    theta: Tensor, x: Tensor, y: Tensor, reference: Tensor = reference
                ) -> Tensor:
                    pull = 0.5 / 2 * (theta - reference).square().sum()
                    return world.cross_entropy(theta, x, y) + pull

                theta = world.sgd(theta, [batch] * 3, envelope, momentum=0, clip=clip)
                reference = reference - 0.3 * (reference - theta)
            assert torch.allclose(history[round - 1].personal[k]["model"], theta, atol=1e-6)
            assert torch.allclose(history[round - 1].up[k]["model"], reference, atol=1e-6)
            references.append(reference)
        w = (1 - 1.5) * w + 1.5 * world.mean(references)
        assert torch.allclose(history[round - 1].server["model"], w, atol=1e-6)


def test_the_momentum_of_local_training_plays_no_part(world: World) -> None:
    assert world.same(world.play(pFedMe()), world.play(pFedMe(), momentum=0))


def test_statistics_of_batch_norm_are_averaged_also_when_the_server_goes_beyond_the_mean(
    world: World,
) -> None:
    net = "tiny-bn"
    (only,) = world.play(pFedMe(beta=3), 1, net=net)
    count = world.initial(net).weight_count
    expected = world.mean(only.up[k]["model"] for k in range(3))
    assert torch.allclose(only.server["model"][count:], expected[count:])
    assert not torch.allclose(only.server["model"][:count], expected[:count])
    assert torch.equal(only.up[0]["model"][count:], only.personal[0]["model"][count:])


def test_only_the_reference_moves(world: World) -> None:
    (only,) = world.play(pFedMe(), 1)
    assert only.up[0].keys() == pFedMe().download(only.server).keys() == {"model"}
    assert not torch.equal(only.up[0]["model"], only.personal[0]["model"])


@pytest.mark.parametrize(
    "wrong", [{"weight": -1}, {"alpha": 1.5}, {"inner_steps": 0}, {"beta": -0.5}]
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=f"method pfedme: {next(iter(wrong))} is"):
        pFedMe(**wrong)


def test_the_original_preset_is_the_authors_lambda_and_outer_rate() -> None:
    params = pFedMe(preset="original").params
    assert (params.weight, params.alpha) == (15, 15 * 0.005)
    assert (params.inner_steps, params.beta) == (5, 1)
