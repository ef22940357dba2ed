from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fedmap.paper import STUDIES
from fedmap.paper.figures.partial_classes import findings, gaps, target_accuracy
from fedmap.paper.finding import Verdict, not_tested
from fedmap.paper.study import Choice, Row

STUDY = STUDIES["partial-classes"]
(CLAIM,) = STUDY.claims()


def row(model: str, targets: int, accuracy: float, among: float, seed: int = 0) -> Row:
    where = {"model": model, "trained_on": targets if model == "M1" else 100, "seed": seed}
    numbers = {"accuracy": accuracy, "accuracy_among_targets": among}
    return where | {"targets": targets} | numbers


def both(gap: dict[int, float], among: dict[int, float] | None = None) -> list[Row]:
    """M2 at 40, and 60 among the targets; M1 so much above. Three seeds around them, which differ
    for both models alike, so that gaps have no error."""
    rows = []
    for n, value in gap.items():
        for seed, shift in enumerate((-1, 0, 1)):
            low, high = 40.0 + shift, 60.0 + shift
            rows.append(row("M1", n, low + value, high + (among or gap)[n], seed))
            rows.append(row("M2", n, low, high, seed))
    return rows


def spread(gap: dict[int, tuple[float, ...]]) -> list[Row]:
    """M2 at 40, and 60 among the targets; M1 with each seed so much above."""
    rows = []
    for n, values in gap.items():
        for seed, value in enumerate(values):
            rows.append(row("M1", n, 40 + value, 60 + value, seed))
            rows.append(row("M2", n, 40.0, 60.0, seed))
    return rows


def test_the_printed_settings_at_the_papers_scale() -> None:
    trainings: Any = STUDY.work(STUDY.choice("paper"))
    targets = (10, 20, 30, 40, 50, 60, 70, 80)
    assert [t.classes for t in trainings] == [*targets, 100]
    assert [t.targets for t in trainings] == [*((n,) for n in targets), targets]
    assert {(t.data, t.net, t.epochs) for t in trainings} == {("cifar-100", "vgg16-bn", 50)}
    assert {(t.lr, t.momentum, t.samples) for t in trainings} == {(0.03, 0.9, None)}


@pytest.mark.parametrize(
    ("scale", "classes", "threads"), [("paper", 100, 2), ("small", 100, 1), ("smoke", 10, 1)]
)
def test_m2_is_trained_on_all_classes_and_a_large_net_with_two_threads(
    scale: str, classes: int, threads: int
) -> None:
    trainings: Any = STUDY.work(STUDY.choice(scale))
    assert (trainings[-1].classes, trainings[-1].threads) == (classes, threads)


def test_the_small_scale_says_what_it_cuts() -> None:
    assert STUDY.cuts("small") == [
        "tfcnn instead of vgg16-bn",
        "30 epochs instead of 50",
        "only 10, 20, 40, 80 targeted classes",
    ]
    assert STUDY.cuts("paper") == []


def test_accuracy_on_targets_with_all_outputs_and_among_the_targets() -> None:
    logits = torch.tensor([[3.0, 1, 9], [1, 2, 0], [0, 1, 5], [5, 1, 0]])
    row = target_accuracy(logits, torch.tensor([0, 1, 2, 1]), 2)
    assert row == {"targets": 2, "accuracy": 33.33, "accuracy_among_targets": 66.67}


def test_a_training_with_one_number_of_targets_is_m1(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(classes: int, *targets: int, done: bool = True) -> Any:
        return SimpleNamespace(
            classes=classes,
            targets=targets,
            seed=4,
            name="training",
            done=lambda root: done,
            measured=lambda root: [{"targets": n, "accuracy": 50.0} for n in targets],
        )

    trainings = [work(10, 10), work(20, 20, done=False), work(100, 10, 20)]
    monkeypatch.setattr(type(STUDY), "work", lambda study, choice: trainings)
    m1, m2 = ({"model": m, "trained_on": n, "seed": 4} for m, n in (("M1", 10), ("M2", 100)))
    assert STUDY.collect(Choice("paper"), Path()) == [
        m1 | {"targets": 10, "accuracy": 50.0},
        m2 | {"targets": 10, "accuracy": 50.0},
        m2 | {"targets": 20, "accuracy": 50.0},
    ]


def test_a_gap_is_m1_minus_m2_with_its_error_over_the_seeds_that_both_have() -> None:
    rows = [row("M1", 10, 50.0, 70.0), row("M1", 10, 60.0, 71.0, seed=1)]
    rows += [row("M2", 10, 40.0, 80.0), row("M2", 10, 44.0, 82.0, seed=1), row("M1", 20, 9.0, 9.0)]
    rows += [row("M1", 10, 99.0, 99.0, seed=2), row("M2", 10, 99.0, 99.0, seed=3)]
    # of two values the standard error is half their difference
    expected = {"accuracy": (13, 3), "accuracy_among_targets": (-10.5, 0.5)}  # of 10 and 16
    for name, (gap, error) in expected.items():
        found = gaps(rows, name)
        assert list(found) == [10]
        assert (found[10].mean, found[10].number) == (gap, 2)
        assert found[10].error == pytest.approx(error)


def test_gaps_stand_by_rising_number_of_targets() -> None:
    assert list(gaps(both({40: 1.0, 10: 2.0, 20: 3.0}))) == [10, 20, 40]


def test_the_table_has_both_models_and_their_differences() -> None:
    rows = [row("M1", 10, 50.0, 51.0), row("M2", 10, 40.0, 58.0), row("M1", 20, 30.0, 31.0)]
    rows += [row("M1", 40, 50.0, 51.0), row("M2", 40, 41.0, 58.0)]
    rows += [row("M1", 40, 52.0, 53.0, 1), row("M2", 40, 40.0, 58.5, 1)]
    table = STUDY.report(rows).tables["accuracy"]
    choices = ("M1", "M2", "M1, among targets", "M2, among targets")
    assert table.head == ["targeted classes", *choices, "M1 above M2", "among targets"]
    assert table.lines == [
        ["10", "50.0", "40.0", "51.0", "58.0", "+10.00", "−7.00"],
        ["20", "30.0", "-", "31.0", "-", "-", "-"],
        ["40", "51.0", "40.5", "52.0", "58.2", "+10.50 ± 1.50", "−6.25 ± 0.75"],
    ]
    assert "mean over seeds, and the difference ± its standard error" in table.caption


def test_bars_are_both_models_and_marks_are_m2_among_the_targets() -> None:
    rows = [*both({20: 5.0, 10: 10.0}), row("M1", 40, 33.0, 34.0)]
    (axes,) = STUDY.report(rows).figures["accuracy"].axes
    drawn: list[Any] = list(axes.patches)
    middles = [round(bar.get_x() + bar.get_width() / 2, 6) for bar in drawn]
    bars = dict(zip(middles, (bar.get_height() for bar in drawn), strict=True))
    assert bars == {-0.2: 50, 0.8: 45, 1.8: 33, 0.2: 40, 1.2: 40}
    (marks,) = axes.lines
    assert np.allclose(np.array(marks.get_xydata()), [[0.2, 60], [1.2, 60]])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "20", "40"]
    inside: list[Any] = list(axes.texts)
    assert [text.get_text() for text in inside] == ["50.0", "45.0", "33.0", "40.0", "40.0"]
    assert all(text.xyann[1] < 0 for text in inside)  # below the top of its bar


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        ({10: 5.0, 20: 1.0}, Verdict.HOLDS),
        ({10: 5.0, 20: -1.0}, Verdict.IN_PART),
        ({10: 0.0, 20: -1.0}, Verdict.FAILS),
    ],
)
def test_other_classes_cost_accuracy(gap: dict[int, float], verdict: Verdict) -> None:
    among_all, _, among_targets = findings(both(gap, {10: 1.0, 20: 1.0}))
    assert (among_all.verdict, among_targets.verdict) == (verdict, Verdict.HOLDS)
    among_all, _, among_targets = findings(both({10: 1.0, 20: 1.0}, gap))
    assert (among_all.verdict, among_targets.verdict) == (Verdict.HOLDS, verdict)


def test_a_gap_within_its_error_costs_nothing() -> None:
    little, enough = (1.0, 2.0, 3.0), (2.0, 3.0, 4.0)  # 4.30 standard errors are 2.48
    cases: dict[Verdict, dict[int, tuple[float, ...]]] = {
        Verdict.FAILS: {10: little, 20: little},
        Verdict.IN_PART: {10: enough, 20: little},
        Verdict.HOLDS: {10: enough, 20: enough},
    }
    for verdict, gap in cases.items():
        among_all, _, among_targets = findings(spread(gap))
        assert (among_all.verdict, among_targets.verdict) == (verdict, verdict)


def test_gaps_are_told_with_their_sign_error_and_number_of_targets() -> None:
    among_all, serious, among_targets = findings(both({10: 5.0, 20: -1.0}, {10: -2.0, 20: 3.0}))
    assert among_all.numbers.endswith(": +5.00 ± 0.00 with 10, −1.00 ± 0.00 with 20")
    assert serious.numbers == (
        "The degradation is +5.00 ± 0.00 points with 10 targets and −1.00 ± 0.00 with 20"
    )
    assert among_targets.numbers.endswith(": −2.00 ± 0.00 with 10, +3.00 ± 0.00 with 20")
    among_all, serious, _ = findings(spread({10: (4.0, 5.0, 6.0), 20: (1.0, 3.0, 5.0)}))
    assert among_all.numbers.endswith(": +5.00 ± 0.58 with 10, +3.00 ± 1.15 with 20")
    assert serious.numbers.endswith("+5.00 ± 0.58 points with 10 targets and +3.00 ± 1.15 with 20")


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        ({10: 9.0, 20: 5.0, 40: 1.0}, Verdict.HOLDS),
        ({10: 9.0, 20: 1.0, 40: 5.0}, Verdict.IN_PART),
        ({10: 9.0, 20: 9.0, 40: 1.0}, Verdict.IN_PART),
        ({10: 5.0, 20: 9.0, 40: 5.0}, Verdict.FAILS),
        ({10: 5.0, 20: 1.0, 40: 9.0}, Verdict.FAILS),
        ({10: 9.0, 20: 5.0}, Verdict.HOLDS),
        ({10: 5.0}, Verdict.NOT_TESTED),
    ],
)
def test_fewer_targets_cost_more(gap: dict[int, float], verdict: Verdict) -> None:
    assert findings(both(gap))[1].verdict is verdict


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        # each gap has the standard error 0.58, so the difference of two has 0.82; with two times
        # two degrees of freedom it counts from 2.78 times that on, which is 2.27
        ({10: (4.0, 5.0, 6.0), 20: (1.0, 2.0, 3.0)}, Verdict.HOLDS),
        ({10: (3.2, 4.2, 5.2), 20: (1.0, 2.0, 3.0)}, Verdict.FAILS),
        ({10: (3.3, 4.3, 5.3), 20: (1.0, 2.0, 3.0)}, Verdict.HOLDS),
        ({10: (5.0, 6.0, 7.0), 20: (3.0, 4.0, 5.0), 40: (1.0, 2.0, 3.0)}, Verdict.IN_PART),
        ({10: (7.0, 8.0, 9.0), 20: (4.0, 5.0, 6.0), 40: (1.0, 2.0, 3.0)}, Verdict.HOLDS),
    ],
)
def test_fewer_targets_cost_more_by_the_errors_of_both(
    gap: dict[int, tuple[float, ...]], verdict: Verdict
) -> None:
    assert findings(spread(gap))[1].verdict is verdict


def test_accuracies_below_forty_decide_nothing() -> None:
    low = [r | {"accuracy": r["accuracy"] - 5.01} for r in both({10: 5.0, 20: 1.0})]
    assert CLAIM.judge(low) == not_tested(CLAIM.text, "no accuracy reaches 40 %")
    high = [r | {"accuracy": r["accuracy"] - 5.0} for r in both({10: 5.0, 20: 1.0})]
    assert CLAIM.judge(high).verdict is Verdict.HOLDS


def test_the_cost_with_the_fewest_targets_has_an_error_over_seeds() -> None:
    rows = [row("M1", 10, 45.0, 62.0), row("M2", 10, 40.0, 60.0)]
    rows += [row("M1", 10, 47.0, 63.0, 1), row("M2", 10, 40.0, 60.0, 1)]
    rows.append(row("M1", 10, 99.0, 99.0, 2))  # without its M2
    short = "M1 +6.00 ± 1.00 from M2 with 10 classes, +2.50 ± 0.50 among them"
    assert findings(rows + spread({20: (1.0,)}))[0].short == short


def test_two_seeds_decide_nothing() -> None:
    rows = [r for r in both({10: 5.0, 20: 1.0}) if r["seed"] < 2]
    assert {finding.verdict for finding in findings(rows)} == {Verdict.NOT_TESTED}
    assert CLAIM.judge(rows) == not_tested(CLAIM.text, "2 of 3 seeds")


def test_the_report_carries_the_findings() -> None:
    rows = both({10: 5.0, 20: 1.0})
    assert STUDY.report(rows).findings == findings(rows)


def test_the_claim_joins_the_three_statements() -> None:
    assert CLAIM.judge(both({10: 5.0, 20: 1.0})).verdict is Verdict.HOLDS
    mixed = both({10: 5.0, 20: 1.0}, {10: -1.0, 20: -1.0})
    assert CLAIM.judge(mixed).verdict is Verdict.IN_PART
    worse = [r | {"accuracy": r["accuracy"] + 9} for r in both({10: -5.0, 20: -1.0})]
    assert CLAIM.judge(worse).verdict is Verdict.FAILS
    assert CLAIM.judge([row("M1", 10, 50.0, 50.0)]).verdict is Verdict.NOT_TESTED
