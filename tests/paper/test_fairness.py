from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedmap.paper import STUDIES
from fedmap.paper.federated import COLUMNS
from fedmap.paper.figures.fairness import changes, per_cent
from fedmap.paper.finding import Estimate, Verdict
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


def lost(method: str, column: str = MLP, seed: int = 0) -> Row:
    """The row of a run that diverged."""
    where = {"column": column, "seed": seed, "method": method}
    return where | {"client": None, "accuracy": None}


def test_a_run_that_diverged_is_named_and_its_seed_has_no_change() -> None:
    plain = [r for r in clients([9.0, 9.0], seed=1) if r["method"] == "fedavg"]
    report = FAIRNESS.report([*clients([1.0, 3.0]), *plain, lost("map", seed=1)])
    assert report.notes == [
        f"{MLP}, seed 0: of 2 clients 0 are worse off with MAP, 2 better off, 0 unchanged; the "
        "mean change is +2.00 ± 1.00 points, the worst +1.0.",
        f"MAP on {MLP}, seed 1, diverged and is left out.",
    ]
    assert len(report.figures["histogram"].axes) == 1
    both = [lost("fedavg", TFCNN), lost("map", TFCNN)]
    assert FAIRNESS.report(both).notes == [
        f"{name} on {TFCNN}, seed 0, diverged and is left out." for name in ("FedAvg", "MAP")
    ]


def test_a_seed_that_diverged_does_not_decide() -> None:
    three = [r for seed in range(3) for r in clients([1.0] * 9, seed=seed)]
    assert FEW.judge(three).verdict is Verdict.HOLDS
    third = [r for r in three if (r["seed"], r["method"]) == (2, "map")]
    without = [*(r for r in three if r not in third), lost("map", seed=2)]
    assert FEW.judge(without).verdict is Verdict.NOT_TESTED


def test_a_note_counts_who_is_worse_better_and_equal() -> None:
    report = FAIRNESS.report(clients([4.0, 2.5, -1.0, 0.0]) + clients([-2.0], TFCNN, seed=1))
    assert report.notes == [
        f"{MLP}, seed 0: of 4 clients 1 are worse off with MAP, 2 better off, 1 unchanged; the "
        # the squares from 1.375 are 15.69: (15.69 / 3 / 4) ** 0.5 is 1.14
        "mean change is +1.38 ± 1.14 points, the worst −1.0.",
        f"{TFCNN}, seed 1: of 1 clients 1 are worse off with MAP, 0 better off, 0 unchanged; the "
        "mean change is −2.00 points, the worst −2.0.",
    ]


def bars(figure: Figure, place: int = 0) -> dict[str, float]:
    axes = figure.axes[place]
    drawn: list[Any] = list(axes.patches)
    middles = [round(bar.get_x() + bar.get_width() / 2, 6) for bar in drawn]
    assert middles == list(axes.get_xticks())
    names = [label.get_text() for label in axes.get_xticklabels()]
    return dict(zip(names, (bar.get_height() for bar in drawn), strict=True))


def test_the_histogram_counts_who_loses_who_stays_and_who_gains() -> None:
    gains = [-3.5, -2.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0, 2.5]
    figure = FAIRNESS.report(clients(gains)).figures["histogram"]
    expected = {"−4 to −2": 1, "−2 to 0": 2, "unchanged": 2, "0 to +2": 3, "+2 to +4": 1}
    assert bars(figure) == expected
    assert figure.axes[0].get_title(loc="left") == f"{MLP}, seed 0"
    assert [text.get_text() for text in figure.axes[0].texts] == ["1", "2", "2", "3", "1"]


def test_those_who_lose_are_red_and_those_who_stay_are_gray() -> None:
    figure = FAIRNESS.report(clients([-3.5, -1.0, 0.0, 0.5])).figures["histogram"]
    colors: list[Any] = [bar.get_facecolor() for bar in figure.axes[0].patches]
    left, middle, unchanged, right = colors
    assert left == middle
    assert left[0] > 2 * left[2]
    assert unchanged[0] == unchanged[1] == unchanged[2]
    assert right[2] > 2 * right[0]


def test_a_bar_without_a_client_has_no_number() -> None:
    figure = FAIRNESS.report(clients([0.5, 4.5])).figures["histogram"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["", "1", "", "1"]


def test_far_changes_have_wider_bars() -> None:
    names = list(bars(FAIRNESS.report(clients([-1.0, 36.0])).figures["histogram"]))
    assert names[:3] == ["−4 to 0", "unchanged", "0 to +4"]
    assert names[-1] == "+32 to +36"


def test_clients_that_all_stay_equal_have_one_bar() -> None:
    figure = FAIRNESS.report(clients([0.0, 0.0])).figures["histogram"]
    assert bars(figure) == {"unchanged": 2}


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


def test_the_numbers_are_every_clients_accuracy_and_one_row_of_a_run_that_diverged(
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
        where | {"client": None, "accuracy": None},
    ]


def test_every_column_and_seed_has_its_histogram() -> None:
    rows = clients([1.0, 3.0]) + clients([1.0], seed=1) + clients([-3.0], TFCNN)
    figure = FAIRNESS.report(rows).figures["histogram"]
    assert [bars(figure, i) for i in range(3)] == [
        {"unchanged": 0, "0 to +2": 1, "+2 to +4": 1},
        {"unchanged": 0, "0 to +2": 1},
        {"−4 to −2": 1, "−2 to 0": 0, "unchanged": 0},
    ]


@pytest.mark.parametrize(
    ("worse", "better", "verdict"),
    [
        (16, 20, Verdict.HOLDS),
        (16, 0, Verdict.HOLDS),
        (20, 0, Verdict.HOLDS),  # of 300 clients the error of 20 % is 2.3 %
        (21, 60, Verdict.IN_PART),
        (21, 33, Verdict.IN_PART),  # 12 % more, with an error of 4.2 %
        (21, 27, Verdict.FAILS),
        (60, 20, Verdict.FAILS),
    ],
)
def test_few_clients_lose(
    worse: int, better: int, verdict: Verdict, thrice: Callable[[list[Row]], list[Row]]
) -> None:
    gains = [-1.0] * worse + [2.0] * better + [0.0] * (100 - worse - better)
    finding = FEW.judge(thrice(clients(gains)))
    assert finding.verdict is verdict
    assert finding.numbers == f"{MLP}: {3 * worse} of 300 worse, {3 * better} better"
    errors = [(n * (100 - n) / 299) ** 0.5 for n in (worse, better)]
    assert finding.short == (
        f"{worse} ± {errors[0]:.0f} of 100 lose, {better} ± {errors[1]:.0f} gain on "
        "Fashion-MNIST, 1 of 8 columns"
    )
    assert finding.so_far


def test_with_every_column_there_is_no_reservation(
    thrice: Callable[[list[Row]], list[Row]],
) -> None:
    rows = [r for column in COLUMNS for r in thrice(clients([1.0] * 7 + [0.0], column.name))]
    finding = FEW.judge(rows)
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, False)
    # 21 of 24 gain in each column, the same ones: (0.875 * 0.125 / 23) ** 0.5 is 6.9 %
    told = "0 ± 0 of 100 lose, 88 ± 7 gain"
    assert finding.short == f"{told} on Fashion-MNIST, {told} elsewhere, 8 of 8 columns"
    assert FEW.judge([r for r in rows if r["column"] != MLP]).so_far


def test_two_seeds_do_not_decide_but_one_does_where_a_whole_run_is_long() -> None:
    rows = clients([1.0] * 9) + clients([1.0] * 9, seed=1)
    assert FEW.judge(rows).verdict is Verdict.NOT_TESTED
    assert FEW.judge(rows + clients([1.0] * 9, seed=2)).verdict is Verdict.HOLDS
    assert FEW.judge(clients([1.0] * 100, TFCNN)).verdict is Verdict.HOLDS
    assert FEW.judge(clients([1.0] * 99, TFCNN)).verdict is Verdict.NOT_TESTED
    assert FEW.judge(clients([1.0] * 100)).verdict is Verdict.NOT_TESTED
    small = [r for seed in range(3) for r in clients([1.0] * 9, TFCNN, seed)]
    assert FEW.judge(small).verdict is Verdict.HOLDS


def test_clients_of_all_seeds_are_counted_together() -> None:
    few, many = [-1.0] * 1 + [1.0] * 9, [-1.0] * 2 + [1.0] * 8
    rows = clients(few) + clients(many, seed=1) + clients(few, seed=2) + clients(few * 10, TFCNN)
    finding = FEW.judge(rows)
    assert finding.verdict is Verdict.HOLDS
    told = [f"{MLP}: 4 of 30 worse, 26 better", f"{TFCNN}: 10 of 100 worse, 90 better"]
    assert finding.numbers == "; ".join(told)
    # the error of 4 of 30 is (13.3 * 86.7 / 29) ** 0.5, that of 10 of 100 (10 * 90 / 99) ** 0.5
    own, other = "13 ± 6 of 100 lose, 87 ± 6 gain", "10 ± 3 of 100 lose, 90 ± 3 gain"
    assert finding.short == f"{own} on Fashion-MNIST, {other} elsewhere, 2 of 8 columns"


def test_columns_count_alike_and_those_with_the_same_clients_are_joined_client_by_client() -> None:
    loses = np.array([True, False, False, False])
    many = per_cent([loses, np.zeros(16, bool)])
    assert many.mean == 12.5
    assert many.error == pytest.approx(12.5)  # of 25 ± 25 and 0 ± 0
    assert per_cent([loses, loses]) == Estimate.of([100.0, 0.0, 0.0, 0.0])
    assert per_cent([loses, ~loses]) == Estimate(50.0, 0.0, 4)  # of each client one half


@pytest.mark.parametrize(
    ("worse", "better", "verdict"),
    [
        (40, 60, Verdict.HOLDS),  # 10 % more than half, with an error of 4.9 %
        (20, 59, Verdict.IN_PART),
        (41, 59, Verdict.FAILS),  # 18 % more, with an error of 9.9 %
    ],
)
def test_on_other_data_most_clients_gain(worse: int, better: int, verdict: Verdict) -> None:
    gains = [-1.0] * worse + [1.0] * better + [0.0] * (100 - worse - better)
    assert FEW.judge(clients(gains, TFCNN)).verdict is verdict


def test_without_both_methods_the_claim_is_not_tested() -> None:
    rows = [r for r in clients([1.0]) if r["method"] == "map"]
    assert FEW.judge(rows).verdict is Verdict.NOT_TESTED
