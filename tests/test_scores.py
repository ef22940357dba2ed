"""The formulas beside scikit-learn's."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from fedmap import scores

CLASSES = 5
pairs = st.lists(st.tuples(st.integers(0, CLASSES - 1), st.integers(0, CLASSES - 1)), min_size=1)


@given(pairs)
def test_every_number_is_scikit_learns(answered: list[tuple[int, int]]) -> None:
    y, answers = np.array(answered).T
    matrix = scores.confusion(torch.tensor(y), torch.tensor(answers), CLASSES)
    tally = {"confusion": matrix}
    expected = metrics.confusion_matrix(y, answers, labels=range(CLASSES))
    assert matrix.tolist() == expected.tolist()
    assert scores.accuracy(tally) == metrics.accuracy_score(y, answers)
    assert scores.macro_f1(tally) == pytest.approx(
        metrics.f1_score(y, answers, average="macro", zero_division=0)
    )
    with warnings.catch_warnings(action="ignore"):  # of answers that are nobody's label
        balanced = metrics.balanced_accuracy_score(y, answers)
    assert scores.balanced_accuracy(tally) == pytest.approx(balanced)
    recall = metrics.recall_score(y, answers, average=None, labels=np.unique(y), zero_division=0)
    own = scores.per_class(tally)
    assert [own[label] for label in np.unique(y)] == pytest.approx(recall.tolist())
    assert [own[label] for label in set(range(CLASSES)) - set(y)] == [None] * (
        CLASSES - len(np.unique(y))
    )


def test_right_and_total_of_each_class_are_enough_for_all_but_f1_and_the_matrix() -> None:
    tally = {"confusion": torch.tensor([[3, 1], [2, 2]])}
    less = scores.right_and_total(tally)
    assert {name: counts.tolist() for name, counts in less.items()} == {
        "right": [3, 2],
        "total": [4, 4],
    }
    whole, rest = (scores.report(one, ["a", "b"], "global") for one in (tally, less))
    assert rest == whole | {"global_macro_f1": None, "global_confusion": None}
    assert whole["global_confusion"] == [[3, 1], [2, 2]]


def test_tallies_are_added_entry_by_entry() -> None:
    one = {"confusion": torch.tensor([[1, 0], [0, 2]])}
    other = {"confusion": torch.tensor([[0, 3], [1, 0]])}
    assert scores.added([one, other])["confusion"].tolist() == [[1, 3], [1, 2]]


def test_without_a_sample_there_is_no_number() -> None:
    nothing = {"confusion": torch.zeros(2, 2, dtype=torch.int64)}
    assert scores.accuracy(nothing) is None
    assert scores.balanced_accuracy(nothing) is None
    assert scores.macro_f1(nothing) is None
