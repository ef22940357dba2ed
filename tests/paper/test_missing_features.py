from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedmap.paper import STUDIES
from fedmap.paper.figures.missing_features import (
    OBSERVED,
    POINTS,
    View,
    apart,
    draw,
    findings,
    point,
)
from fedmap.paper.finding import Verdict
from fedmap.paper.report import size_in_words
from fedmap.paper.study import Row

STUDY = STUDIES["missing-features"]
(CLAIM,) = STUDY.claims()
RELU, PLAIN = "lenet-2d-relu", "lenet-2d"
MORE = (0.2 - (2 * np.pi - 6.2)) / 2  # that 3.1 and -3.1 lack of 0.2 between them, for each
pytestmark = pytest.mark.usefixtures("one_seed_is_enough")


def training(
    observed: int = 2,
    missing: tuple[float, float] = (-1.0, -1.0),
    spread: float = 1.0,
    net: str = RELU,
    seed: int = 0,
) -> list[Row]:
    """Three classes or more: features of two of them on the axes around (4, 0) and (0, 4), proxies
    of norm 2 along them, and further proxies as given."""
    rows = [point("feature", 0, 4 - spread, 0), point("feature", 0, 4 + spread, 0)]
    rows += [point("feature", 1, 0, 4 - spread), point("feature", 1, 0, 4 + spread)]
    rows += [point("proxy", c, 2 * (c % 2 == 0), 2 * (c % 2)) for c in range(observed)]
    rows += [point("proxy", observed, *missing), point("accuracy", None, 90 + observed)]
    return [{"net": net, "observed": observed, "seed": seed} | row for row in rows]


def with_accuracy(percent: float, rows: list[Row]) -> list[Row]:
    return [r | {"x": percent} if r["kind"] == "accuracy" else r for r in rows]


def again(rows: list[Row]) -> list[Row]:
    return [r | {"seed": 1} for r in rows]


def test_the_printed_settings_at_the_papers_scale() -> None:
    trainings: Any = STUDY.work(STUDY.choice("paper"))
    assert [(t.net, t.classes) for t in trainings] == [
        (n, c) for n in (RELU, PLAIN) for c in (8, 5, 2)
    ]
    assert {(t.data, t.epochs, t.lr, t.samples) for t in trainings} == {("mnist", 50, 0.01, None)}


def test_the_page_says_what_the_small_scale_cuts(reproduction: str) -> None:
    assert size_in_words(STUDY.cuts("small")) in reproduction
    assert STUDY.cuts("paper") == []


def test_the_last_epoch_is_measured_on_the_observed_classes() -> None:
    trainings: Any = STUDY.work(STUDY.choice("smoke"))
    work = trainings[1]
    model = work.fresh()
    rows = work.measure(work.epochs, model, torch.zeros(0))
    x, y = work.test_data()
    with torch.inference_mode():
        features, right = model.features(x), model(x).argmax(1) == y
    assert rows[-1] == point("accuracy", None, 100 * int(right.sum()) / len(y))
    dots = [(r["class"], r["x"], r["y"]) for r in rows if r["kind"] == "feature"]
    expected = [(c, *h.tolist()) for c in range(5) for h in features[y == c][:POINTS]]
    assert np.allclose(dots, expected, atol=1e-4)
    proxies = [(r["class"], r["x"], r["y"]) for r in rows if r["kind"] == "proxy"]
    weights = model.net.classifier.weight.tolist()
    assert proxies == [(c, round(w[0], 4), round(w[1], 4)) for c, w in enumerate(weights)]


def test_a_view_tells_observed_from_missing_classes() -> None:
    seen = View(training(), {0, 1})
    assert seen.missing == [2]
    assert {label: len(points) for label, points in seen.features.items()} == {0: 2, 1: 2}


def test_a_norm_is_the_mean_over_the_classes() -> None:
    rows = [point("proxy", 0, 3, 4), point("proxy", 1, 0, 1), point("proxy", 2, 6, 8)]
    seen = View(rows, {0, 1})
    assert seen.norm(seen.observed) == 3
    assert seen.norm(seen.missing) == 10


@pytest.mark.parametrize(
    ("missing", "cosine"),
    [((-1.0, -1.0), -1), ((3.0, 3.0), 1), ((1.0, -1.0), 0), ((0.0, 2.0), 0.5**0.5)],
)
def test_a_direction_is_the_cosine_with_the_features_center(
    missing: tuple[float, float], cosine: float
) -> None:
    assert View(training(missing=missing), {0, 1}).against() == [pytest.approx(cosine)]


def test_the_center_counts_every_class_once() -> None:
    rows = training(missing=(0.0, -1.0)) + [point("feature", 0, 4, 0)] * 50
    assert View(rows, {0, 1}).against() == [pytest.approx(-(0.5**0.5))]


def test_the_center_is_the_mean_of_the_classes_centers() -> None:
    rows = [point("feature", 0, 6, 2), point("feature", 1, 0, 0)]  # the center is (3, 1)
    rows += [point("proxy", 0, 1, 0), point("proxy", 1, 0, 1), point("proxy", 2, 1, -3)]
    assert View(rows, {0, 1}).against() == [pytest.approx(0)]


def test_looseness_is_the_distance_from_the_centers_beside_their_norm() -> None:
    dots = [point("feature", 0, 3, 0), point("feature", 0, 5, 0)]
    dots += [point("feature", 1, 0, 4), point("feature", 1, 0, 4), point("proxy", 0, 1, 1)]
    assert View(dots, {0}).looseness() == pytest.approx(0.5 / 4)


def test_the_table_has_a_line_for_each_training() -> None:
    rows = training(5, net=PLAIN) + training(2, (-3.0, -4.0), seed=1) + training(8)
    table = STUDY.report(rows).tables["proxies"]
    assert table.lines == [
        ["With ReLU #0", "8", "98.0", "2.00", "1.41", "0.25"],
        ["With ReLU #1", "2", "92.0", "2.00", "5.00", "0.25"],
        ["Without ReLU #0", "5", "95.0", "2.00", "1.41", "0.25"],
    ]
    assert table.head[2] == "accuracy on them, %"


def test_features_are_dots_and_proxies_are_lines_from_the_origin() -> None:
    rows = training(missing=(-1.0, 0.0))
    figure = STUDY.report(rows).figures["features"]
    axes = figure.axes[2]  # the first net, 2 of the classes
    assert axes.get_title(loc="left") == "With ReLU, classes 0 to 1, seed 0: 92.0 %"
    dots = [np.asarray(mark.get_offsets()).tolist() for mark in axes.collections]
    assert dots == [[[3, 0], [5, 0]], [[0, 3], [0, 5]]]
    reach = 5.0  # the longest proxy reaches as far as nearly all dots
    lines = np.array([line.get_xydata() for line in axes.lines[:6:2]]) / reach
    assert np.allclose(lines[:, 0], 0)
    assert np.allclose(lines[:, 1], [[1.0, 0.0], [0.0, 1.0], [-0.5, 0.0]])
    assert [text.get_text() for text in axes.texts] == ["0", "1", "2"]


def picture(rows: list[Row]) -> Axes:
    """Of a net with two observed classes."""
    axes = Figure().subplots()
    draw(axes, View(rows, {0, 1}))
    return axes


def test_each_class_has_a_color_of_its_own() -> None:
    axes = picture(training())
    dots = [tuple(np.asarray(mark.get_facecolor())[0][:3]) for mark in axes.collections]
    lines: list[Any] = [line.get_color() for line in axes.lines[:4]]  # proxy, way to its number
    assert [dots[0], dots[0], dots[1], dots[1]] == [color[:3] for color in lines]
    assert dots[0] != dots[1]


def numbers_at(axes: Axes) -> NDArray[np.float64]:
    """Where the classes' numbers stand."""
    return np.array([text.get_position() for text in axes.texts])


RING = 1.12 * 5  # a little beyond the dot that is farthest from the origin


@pytest.mark.parametrize("missing", [(-1.0, 0.0), (-0.001, 0.0), (-2.0, 0.0)])
def test_numbers_stand_on_a_ring_beyond_all_dots_in_the_direction_of_their_lines(
    missing: tuple[float, float],
) -> None:
    axes = picture(training(missing=missing))
    assert np.allclose(numbers_at(axes), [[RING, 0], [0, RING], [-RING, 0]])


def test_a_thin_line_goes_from_the_end_of_a_proxy_to_its_number() -> None:
    axes = picture(training(missing=(-1.0, 0.0)))
    lines = np.array([line.get_xydata() for line in axes.lines[:6]])
    proxies, ways = lines[::2], lines[1::2]
    assert np.allclose(ways[:, 0], proxies[:, 1])
    assert np.allclose(ways[:, 1], numbers_at(axes))
    widths = [line.get_linewidth() for line in axes.lines[:6]]
    assert max(widths[1::2]) < min(widths[::2])


def test_numbers_of_proxies_in_one_direction_stand_side_by_side() -> None:
    axes = picture(training(missing=(1.0, 0.0)))  # as the proxy of class 0
    ends = np.array([np.array(line.get_xydata())[1] for line in axes.lines[:6:2]])
    assert np.allclose(ends, [[5.0, 0.0], [0.0, 5.0], [2.5, 0.0]])  # the lines stay where they are
    at = numbers_at(axes)
    assert np.allclose(np.linalg.norm(at, axis=1), RING)
    assert np.allclose(np.arctan2(at[:, 1], at[:, 0]), [-0.13, np.pi / 2, 0.13])


def test_a_proxy_of_length_zero_ends_at_the_origin_and_has_a_number_of_its_own() -> None:
    axes = picture(training(missing=(0.0, 0.0)))
    assert np.array(axes.lines[4].get_xydata()).tolist() == [[0, 0], [0, 0]]
    at = numbers_at(axes)
    assert np.allclose(np.linalg.norm(at, axis=1), RING)
    between = np.linalg.norm(at[0] - at[2])
    assert between == pytest.approx(2 * RING * np.sin(0.13))  # a chord of 0.26


def gaps_in(order: NDArray[np.intp], angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """From each angle to the next on the circle."""
    inside = angles[order]
    return np.diff(inside, append=inside[0] + 2 * np.pi)


# angles of up to ten classes, none of which are the same
ANGLES = st.lists(st.integers(-3141, 3141), min_size=1, max_size=10, unique=True).map(
    lambda found: np.array(found) / 1000
)


@given(ANGLES, st.floats(0.01, 2.0))
def test_angles_move_apart_and_keep_their_order_on_the_circle(
    angles: NDArray[np.float64], least: float
) -> None:
    before = angles.copy()
    gaps = gaps_in(np.argsort(angles), apart(angles, least))
    assert gaps.min() >= min(least, 2 * np.pi / len(angles)) - 1e-3
    assert gaps.sum() == pytest.approx(2 * np.pi)
    assert np.array_equal(angles, before)


@given(ANGLES)
def test_angles_that_are_apart_already_do_not_move(angles: NDArray[np.float64]) -> None:
    least = float(gaps_in(np.argsort(angles), angles).min())
    assert np.array_equal(apart(angles, 0.999 * least), angles)
    if len(angles) > 1 and least < 0.99 * 2 * np.pi / len(angles):
        assert not np.array_equal(apart(angles, 1.001 * least), angles)


@pytest.mark.parametrize(
    ("angles", "least", "expected"),
    [
        ([0.5, 0.5], 0.2, [0.4, 0.6]),
        ([1.0, 0.9, 3.0], 0.2, [1.05, 0.85, 3.0]),  # only neighbors that are too near
        ([0.0, 0.0, 0.0], 0.2, [-0.2, 0.0, 0.2]),
        ([0.0, 0.1, 0.25], 0.2, [-1 / 12, 7 / 60, 19 / 60]),  # the middle one moves too
        ([3.1, -3.1], 0.2, [3.1 - MORE, -3.1 + MORE]),  # across the end of the circle
        ([1.0, 1.0], 9.0, [1 - np.pi / 2, 1 + np.pi / 2]),  # as much as there is
        ([0.7], 9.0, [0.7]),
    ],
)
def test_angles_move_as_little_as_it_takes(
    angles: list[float], least: float, expected: list[float]
) -> None:
    assert np.allclose(apart(np.array(angles), least), expected, atol=1e-6)


def test_angles_that_are_equal_keep_the_order_in_which_they_come() -> None:
    moved = apart(np.array([0.0, 0.26, 0.26, 0.0]), 0.26)
    assert np.argsort(moved).tolist() == [0, 3, 1, 2]


def test_ten_angles_in_one_place_are_as_far_apart_as_asked() -> None:
    moved = apart(np.full(10, 2.0), 0.26)
    expected = 2.0 + 0.26 * (np.arange(10) - 4.5)
    assert np.allclose(moved, expected, atol=1e-3)


def test_every_number_is_inside_the_picture_and_the_picture_is_not_much_larger() -> None:
    axes = picture(training(missing=(-2.0, 0.0)))
    across = [text.get_position()[0] for text in axes.texts]
    left, right = axes.get_xlim()
    assert 1.3 * min(across) < left < 1.05 * min(across)
    assert 1.05 * max(across) < right < 1.3 * max(across)


def test_a_class_whose_features_are_all_zero_is_named() -> None:
    rows = [r | {"y": 0.0} if (r["kind"], r["class"]) == ("feature", 1) else r for r in training()]
    assert picture(rows).texts[-1].get_text() == "every feature of class 1 is 0"


def test_where_all_features_are_zero_the_longest_proxy_has_length_one() -> None:
    rows = [r | {"x": 0.0, "y": 0.0} if r["kind"] == "feature" else r for r in training()]
    axes = picture(rows)
    ends = [np.array(line.get_xydata())[1] for line in axes.lines[:6:2]]
    assert np.allclose(np.linalg.norm(ends, axis=1), [1, 1, 0.5**0.5])
    numbers = [t.get_position() for t in axes.texts if t.get_text().isdigit()]
    assert np.allclose(np.linalg.norm(numbers, axis=1), [1, 1, 1])


def test_the_legend_tells_dots_and_lines_apart() -> None:
    (legend,) = STUDY.report(training()).figures["features"].legends
    assert [text.get_text() for text in legend.texts] == [
        "feature of a test image",
        "proxy of an observed class (one scale in each picture)",
        "proxy of a missing class",
    ]


def test_a_missing_class_has_a_broken_line() -> None:
    axes = STUDY.report(training()).figures["features"].axes[2]
    assert [line.is_dashed() for line in axes.lines[:6:2]] == [False, False, True]


def test_each_panel_shows_its_first_seed_that_did_not_fail() -> None:
    rows = training(seed=3, spread=2.0) + with_accuracy(89.9, training(seed=1))
    rows += training(5, seed=3) + training(5, seed=1, spread=3.0)
    rows += with_accuracy(80.0, training(8, seed=3)) + with_accuracy(70.0, training(8, seed=1))
    eight, five, two, *others = STUDY.report(rows).figures["features"].axes
    assert [axes.get_title(loc="left") for axes in (eight, five, two)] == [
        "With ReLU, classes 0 to 7, seed 1: 70.0 % (failed)",  # as all of them
        "With ReLU, classes 0 to 4, seed 1: 95.0 %",
        "With ReLU, classes 0 to 1, seed 3: 92.0 %",
    ]
    dots = [np.asarray(axes.collections[0].get_offsets()).tolist() for axes in (eight, five, two)]
    assert dots == [[[3, 0], [5, 0]], [[1, 0], [7, 0]], [[2, 0], [6, 0]]]
    assert [axes.axison for axes in (eight, five, two, *others)] == [True] * 3 + [False] * 3


def test_a_seed_with_ninety_per_cent_did_not_fail() -> None:
    rows = with_accuracy(90.0, training()) + training(seed=1)
    axes = STUDY.report(rows).figures["features"].axes[2]
    assert axes.get_title(loc="left") == "With ReLU, classes 0 to 1, seed 0: 90.0 %"


@pytest.mark.parametrize(
    ("first", "second", "verdict", "numbers"),
    [
        ((-0.5, 0.0), (-1.5, 0.0), Verdict.HOLDS, "in 2 of 2 trainings, 0.50 times"),
        ((-0.5, 0.0), (-2.5, 0.0), Verdict.IN_PART, "in 1 of 2 trainings, 0.75 times"),
        ((-3.0, 0.0), (-2.0, 0.0), Verdict.FAILS, "in 0 of 2 trainings, 1.25 times"),
    ],
)
def test_missing_proxies_have_a_smaller_norm(
    first: tuple[float, float], second: tuple[float, float], verdict: Verdict, numbers: str
) -> None:
    finding = findings(training(missing=first) + training(missing=second, net=PLAIN))[0]
    assert finding.verdict is verdict
    assert numbers in finding.numbers


@pytest.mark.parametrize(
    ("away", "towards", "verdict", "cosine"),
    [
        (3, 0, Verdict.HOLDS, "−1.00"),
        (2, 1, Verdict.IN_PART, "−0.33"),
        (1, 1, Verdict.FAILS, "+0.00"),
        (0, 1, Verdict.FAILS, "+1.00"),
    ],
)
def test_missing_proxies_point_away_from_the_center(
    away: int, towards: int, verdict: Verdict, cosine: str
) -> None:
    rows = [r for seed in range(away) for r in training(seed=seed)]
    rows += [r for seed in range(towards) for r in training(missing=(1.0, 1.0), seed=9 + seed)]
    finding = findings(rows)[1]
    assert finding.verdict is verdict
    count = f"{away} of {away + towards}"
    assert finding.numbers == (
        f"{count} proxies of missing classes point away from the center of the observed features "
        f"(mean cosine {cosine}): {count} with ReLU and 2 classes"
    )


def test_how_many_point_away_is_told_by_net_and_number_of_classes() -> None:
    rows = training(2, (1.0, 1.0), net=PLAIN) + training(2, net=PLAIN, seed=1)
    rows += training(2) + training(8, (1.0, 1.0)) + training(8, seed=1) + training(8, seed=2)
    numbers = findings(rows)[1].numbers
    assert numbers.startswith("4 of 6 proxies of missing classes point away")
    assert numbers.endswith(
        ": 2 of 3 with ReLU and 8 classes, 1 of 1 with ReLU and 2 classes, "
        "1 of 2 without ReLU and 2 classes"
    )


@pytest.mark.parametrize(
    ("spreads", "verdict"),
    [
        ((1.0, 2.0, 3.0), Verdict.HOLDS),
        ((1.0, 3.0, 2.0), Verdict.IN_PART),
        ((1.0, 1.0, 2.0), Verdict.IN_PART),
        ((2.0, 1.0, 2.0), Verdict.FAILS),
        ((2.0, 3.0, 1.0), Verdict.FAILS),
        ((3.0, 2.0, 1.0), Verdict.FAILS),
    ],
)
def test_features_are_looser_with_fewer_classes(
    spreads: tuple[float, ...], verdict: Verdict
) -> None:
    pairs = list(zip(OBSERVED, spreads, strict=True))
    finding = findings(
        [r for n, spread in pairs for seed in (0, 1) for r in training(n, spread=spread, seed=seed)]
    )[2]
    assert finding.verdict is verdict
    values = [
        f"{spread / 4:.2f} with {n} classes" for n, spread in zip(OBSERVED, spreads, strict=True)
    ]
    assert finding.numbers.endswith(": " + ", ".join(values))


def test_looseness_is_the_mean_over_nets_and_seeds() -> None:
    rows = training(8, spread=1.0) + training(8, spread=2.0, net=PLAIN)
    rows += training(8, spread=3.0, seed=1) + training(2, spread=2.4)
    assert "0.50 with 8 classes, 0.60 with 2 classes" in findings(rows)[2].numbers


def test_one_number_of_classes_tells_nothing_of_looseness() -> None:
    assert findings(training())[2].verdict is Verdict.NOT_TESTED


def test_two_numbers_of_classes_tell_of_looseness() -> None:
    rows = training(8, spread=1.0) + training(2, spread=2.0)
    assert findings(rows + again(rows))[2].verdict is Verdict.HOLDS


def test_looseness_is_compared_within_a_net_and_seed_by_its_error() -> None:
    rows = training(8, spread=1.0) + training(2, spread=1.2)
    rows += training(8, spread=2.0, seed=1) + training(2, spread=2.21, seed=1)
    assert findings(rows)[2].verdict is Verdict.HOLDS
    rows += training(8, spread=3.0, seed=2) + training(2, spread=2.9, seed=2)
    assert findings(rows)[2].verdict is Verdict.FAILS
    assert findings(rows[: len(rows) // 3])[2].verdict is Verdict.FAILS  # one pair has no error


def test_a_training_that_failed_is_named_and_left_out() -> None:
    dead = with_accuracy(89.9, training(missing=(9.0, 9.0)))
    rows = dead + training(seed=1)
    assert findings(rows) == findings(training(seed=1))
    assert STUDY.report(rows).notes == [
        "With ReLU, 2 classes: 1 of 2 trainings failed and are left out, by their accuracy on "
        "their own classes: seed 0 (89.9 %)."
    ]
    assert STUDY.report(with_accuracy(90.0, training())).notes == []
    assert findings(dead) == []


def test_failures_are_one_sentence_for_each_net_and_number_of_classes() -> None:
    low = (80.0, 95.0, 70.5)
    rows = [r for s, percent in enumerate(low) for r in with_accuracy(percent, training(seed=s))]
    rows += with_accuracy(50.0, training(net=PLAIN)) + training(8) + training(5, net=PLAIN)
    more = "trainings failed and are left out, by their accuracy on their own classes:"
    assert STUDY.report(rows).notes == [
        f"With ReLU, 2 classes: 2 of 3 {more} seed 0 (80.0 %), seed 2 (70.5 %).",
        f"Without ReLU, 2 classes: 1 of 1 {more} seed 0 (50.0 %).",
    ]


def test_a_proxy_at_a_right_angle_does_not_point_away() -> None:
    assert findings(training(missing=(1.0, -1.0)))[1].verdict is Verdict.FAILS


def test_the_report_carries_the_findings() -> None:
    assert STUDY.report(training()).findings == findings(training())


def test_the_claim_joins_the_three_statements() -> None:
    rows = training(8, spread=1.0) + training(2, spread=2.0)
    whole = CLAIM.judge(rows + again(rows))
    assert whole.verdict is Verdict.HOLDS
    assert whole.short == "missing proxies' norm 0.71 ± 0.00 of the others'"
    towards = training(8, (1.0, 1.0), 1.0) + training(2, (1.0, 1.0), 2.0)
    assert CLAIM.judge(towards).verdict is Verdict.IN_PART
    worst = training(8, (2.0, 2.0), 2.0) + training(2, (2.0, 2.0), 1.0)
    assert CLAIM.judge(worst).verdict is Verdict.FAILS
    assert CLAIM.judge([]).verdict is Verdict.NOT_TESTED
