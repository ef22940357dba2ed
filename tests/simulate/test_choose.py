"""The best round and the early end, from records alone."""

from typing import Any

import pytest

from fedmap.simulate.choose import best_round, enough, score


def records(*pairs: tuple[float | None, float | None]) -> list[dict[str, Any]]:
    return [
        {"round": n, "global_accuracy_validation": g, "personal_accuracy_validation": p}
        for n, (g, p) in enumerate(pairs, 1)
    ]


@pytest.mark.parametrize(
    ("both", "expected"),
    [((0.5, 0.75), 0.625), ((None, 0.75), 0.75), ((0.5, None), 0.5), ((None, None), None)],
)
def test_a_rounds_score_is_the_mean_of_what_there_is(
    both: tuple[float | None, float | None], expected: float | None
) -> None:
    assert score(records(both)[0]) == expected


def test_the_best_round_is_the_first_of_the_highest() -> None:
    assert best_round(records((0.1, 0.3), (0.4, 0.4), (0.2, 0.6), (0.0, 0.7))) == 2


def test_a_score_of_zero_is_a_score() -> None:
    assert best_round(records((0.0, 0.0), (0.0, 0.0))) == 1


def test_without_held_out_samples_there_is_no_best_round() -> None:
    assert best_round([{"round": 1, "global_accuracy": 0.9}]) is None
    assert best_round([]) is None


def test_patience_ends_after_as_many_rounds_without_a_better_one() -> None:
    found = records((0.1, 0.1), (0.5, 0.5), (0.5, 0.5), (0.4, 0.4))
    assert [enough(found[:n], 2) for n in range(5)] == [False, False, False, False, True]
    assert not enough(found, None)
    assert not enough([{"round": 1}], 1)
