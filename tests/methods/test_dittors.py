"""DittoRS: Ditto whose aggregated branch trains with the restricted softmax."""

import pytest
import torch

from fedmap.errors import FedmapError
from fedmap.methods.ditto import Ditto
from fedmap.methods.dittors import DittoRS
from fedmap.methods.fedrs import FedRS


def test_with_alpha_1_it_is_ditto_to_the_bit(world):
    rs, plain = world.play(DittoRS(alpha=1, weight=0.3)), world.play(Ditto(weight=0.3))
    assert world.same(rs, plain)
    assert all(
        torch.equal(rs[1].personal[k]["model"], plain[1].personal[k]["model"]) for k in range(3)
    )


def test_its_global_model_is_fedrss_to_the_bit(world):
    assert world.same(world.play(DittoRS(alpha=0.5, weight=0.3)), world.play(FedRS(alpha=0.5)))


def test_its_personal_branch_keeps_the_ordinary_softmax(world):
    # In the first round both are pulled towards the same initial model.
    (rs,), (plain,) = (
        world.play(DittoRS(alpha=0.1, weight=0.3), 1),
        world.play(Ditto(weight=0.3), 1),
    )
    assert torch.equal(rs.personal[0]["model"], plain.personal[0]["model"])
    assert not torch.equal(rs.up[0]["model"], plain.up[0]["model"])


@pytest.mark.parametrize("wrong", [{"alpha": 1.1}, {"weight": -1}, {"mode": "hard"}])
def test_parameters_out_of_range_are_refused(wrong):
    with pytest.raises(FedmapError, match=f"method dittors: {next(iter(wrong))} is"):
        DittoRS(**wrong)
