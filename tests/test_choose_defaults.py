"""The rule by which defaults are settled."""

import sys
from pathlib import Path

import pytest
import torch

import fedmap
from fedmap.methods import METHODS
from fedmap.paper.groups import GROUPS

sys.path.append(str(Path(__file__).parent.parent / "scripts"))
import choose_defaults
from choose_map_default import held_out


def test_the_score_is_the_mean_of_both_accuracies_or_the_only_one() -> None:
    assert choose_defaults.score((0.6, 0.8)) == pytest.approx(0.7)
    assert choose_defaults.score((None, 0.8)) == 0.8


def test_todays_default_stays_unless_another_is_above_by_two_errors() -> None:
    today: choose_defaults.Scores = [(None, 0.80), (None, 0.81), (None, 0.82)]
    clear: choose_defaults.Scores = [(None, 0.82), (None, 0.83), (None, 0.84)]
    unclear: choose_defaults.Scores = [(None, 0.90), (None, 0.81), (None, 0.81)]
    assert choose_defaults.chosen([today, clear], 0) == 1
    assert choose_defaults.chosen([clear, today], 0) == 0
    assert choose_defaults.chosen([today, unclear], 0) == 0


def test_one_that_diverges_is_out() -> None:
    fair: choose_defaults.Scores = [(None, 0.5)] * 3
    assert choose_defaults.chosen([None, fair], 0) == 1
    assert choose_defaults.chosen([fair, None], 0) == 0
    assert choose_defaults.chosen([None, None], 1) == 1


@pytest.mark.parametrize("method", choose_defaults.MORE)
def test_todays_default_is_among_the_contenders(method: str) -> None:
    contenders = [
        METHODS[method](**p).params for p in GROUPS.get(method, []) + choose_defaults.MORE[method]
    ]
    assert contenders.count(METHODS[method]().params) == 1


def test_no_test_image_is_held_out_or_trained_on() -> None:
    whole = fedmap.load("fashion-mini")
    part = held_out(whole)
    assert len(part.train_y) + len(part.test_y) == len(whole.train_y)
    rows = torch.cat([part.train_x, part.test_x]).flatten(1)
    assert torch.equal(rows.double().sum(0), whole.train_x.flatten(1).double().sum(0))
