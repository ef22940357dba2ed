from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from fedmap.paper import STUDIES
from fedmap.paper.figures.fairness import changes
from fedmap.paper.finding import Verdict
from fedmap.paper.study import Choice, Row

FAIRNESS = STUDIES["fairness"]
MLP, TFCNN = "fashion-mnist/mlp", "cifar-10/tfcnn"
(FEW,) = FAIRNESS.claims()


def clients(gains: list[float], column: str = MLP, seed: int = 0) -> list[Row]:
    """FedAvg's clients at 80 and more, MAP's so much above."""
    where = {"column": column, "seed": seed}
    rows = []
    for k, gain in enumerate(gains):
        plain = 80.0 + k
        rows.append(where | {"method": "fedavg", "client": k, "accuracy": plain})
        rows.append(where | {"method": "map", "client": k, "accuracy": plain + gain})
    return rows


def test_a_change_is_map_minus_fedavg_of_the_same_client() -> None:
    rows = clients([3.0, -1.0, 0.0])
    found = changes(rows[::-1])  # in any order
    assert found[MLP, 0].tolist()[::-1] == [3, -1, 0]


def test_a_seed_that_lacks_one_method_has_no_change() -> None:
    rows = clients([1.0]) + [r for r in clients([1.0], seed=1) if r["method"] == "map"]
    assert list(changes(rows)) == [(MLP, 0)]


def test_a_note_counts_who_is_worse_better_and_equal() -> None:
    report = FAIRNESS.report(clients([4.0, 2.5, -1.0, 0.0]) + clients([-2.0], TFCNN, seed=1))
    assert report.notes == [
        f"{MLP}, seed 0: 1 of 4 clients are worse off with MAP (the paper: 16 of 100 on "
        "Fashion-MNIST), 2 better, 1 equal; the mean change is +1.4 points, the worst -1.0.",
        f"{TFCNN}, seed 1: 1 of 1 clients are worse off with MAP, 0 better, 0 equal; the mean "
        "change is -2.0 points, the worst -2.0.",
    ]


def bars(figure: Figure, place: int = 0) -> dict[float, float]:
    drawn: list[Any] = list(figure.axes[place].patches)
    return {bar.get_x(): bar.get_height() for bar in drawn}


def test_the_histogram_has_zero_as_an_edge_and_counts_clients() -> None:
    figure = FAIRNESS.report(clients([-3.5, -1.0, -0.5, 0.5, 1.0, 1.5, 2.5])).figures["histogram"]
    assert bars(figure) == {-4: 1, -2: 2, 0: 3, 2: 1}
    assert figure.axes[0].get_title(loc="left") == f"{MLP}, seed 0"
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "2", "3", "1"]


def test_bars_left_of_zero_are_red_and_the_others_are_not() -> None:
    figure = FAIRNESS.report(clients([-3.5, -1.0, 0.5])).figures["histogram"]
    colors: list[Any] = [bar.get_facecolor() for bar in figure.axes[0].patches]
    left, middle, right = colors
    assert left == middle
    assert left[0] > 2 * left[2]
    assert right[2] > 2 * right[0]


def test_a_bar_without_a_client_has_no_number() -> None:
    figure = FAIRNESS.report(clients([0.5, 4.5])).figures["histogram"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "", "1"]


def test_far_changes_have_wider_bars() -> None:
    figure = FAIRNESS.report(clients([-1.0, 36.0])).figures["histogram"]
    assert list(bars(figure)) == [4.0 * k for k in range(-1, 9)]


def test_clients_that_all_stay_equal_have_a_bar_right_of_zero() -> None:
    figure = FAIRNESS.report(clients([0.0, 0.0])).figures["histogram"]
    assert bars(figure) == {0: 2}


@pytest.mark.parametrize(
    ("seeds", "shape"), [(1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (4, (2, 2)), (5, (3, 2))]
)
def test_up_to_three_histograms_stand_side_by_side_and_more_in_pairs(
    seeds: int, shape: tuple[int, int]
) -> None:
    rows = [row for seed in range(seeds) for row in clients([1.0], seed=seed)]
    axes = FAIRNESS.report(rows).figures["histogram"].axes
    place = axes[0].get_subplotspec()
    assert len(axes) == seeds
    assert place is not None
    assert place.get_gridspec().get_geometry() == shape


def test_without_a_change_the_figure_is_empty() -> None:
    rows = [r for r in clients([1.0]) if r["method"] == "map"]
    assert FAIRNESS.report(rows).figures["histogram"].axes == []


def test_the_numbers_are_every_clients_accuracy_of_the_runs_that_ended(
    finished_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        finished_run([0.25, 0.123456]),
        finished_run([0.5], diverged=True),
        finished_run([0.5], done=False),
    ]
    monkeypatch.setattr(type(FAIRNESS), "work", lambda study, choice: runs)
    where = {"column": MLP, "method": "map", "seed": 3, "clip": 9.0}
    assert FAIRNESS.collect(Choice("paper"), Path()) == [
        where | {"client": 0, "accuracy": 25.0},
        where | {"client": 1, "accuracy": 12.346},
    ]


def test_every_column_and_seed_has_its_histogram() -> None:
    rows = clients([1.0, 3.0]) + clients([1.0], seed=1) + clients([-3.0], TFCNN)
    figure = FAIRNESS.report(rows).figures["histogram"]
    assert [bars(figure, i) for i in range(3)] == [{0: 1, 2: 1}, {0: 1}, {-4: 1}]


@pytest.mark.parametrize(
    ("worse", "better", "verdict"),
    [
        (16, 20, Verdict.HOLDS),
        (16, 0, Verdict.HOLDS),
        (17, 18, Verdict.IN_PART),
        (17, 17, Verdict.FAILS),
        (60, 20, Verdict.FAILS),
    ],
)
def test_few_clients_lose(worse: int, better: int, verdict: Verdict) -> None:
    gains = [-1.0] * worse + [2.0] * better + [0.0] * (100 - worse - better)
    finding = FEW.judge(clients(gains))
    assert finding.verdict is verdict
    mean = f"{(2 * better - worse) / 100:+.1f}".replace("-", "−")
    numbers = f"{MLP}: {worse} of 100 worse, {better} better, mean {mean} points"
    assert finding.numbers == numbers


def test_clients_of_all_seeds_are_counted_together_and_columns_apart() -> None:
    few, many = [-1.0] * 1 + [1.0] * 9, [-1.0] * 2 + [1.0] * 8
    rows = clients(few) + clients(many, seed=1) + clients(few, TFCNN)
    finding = FEW.judge(rows)
    assert finding.verdict is Verdict.HOLDS
    assert finding.numbers.startswith(f"{MLP}: 3 of 20 worse, 17 better, mean +0.7 points; {TFCNN}")
    assert FEW.judge([*rows, *clients(many, "cifar-10/vgg8")]).verdict is Verdict.IN_PART


def test_without_both_methods_the_claim_is_not_tested() -> None:
    rows = [r for r in clients([1.0]) if r["method"] == "map"]
    assert FEW.judge(rows).verdict is Verdict.NOT_TESTED
