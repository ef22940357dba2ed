import pytest
from scipy import stats

from fedmap.paper.finding import (
    Estimate,
    Finding,
    Verdict,
    by_seeds,
    not_tested,
    signed,
    together,
)

HOLDS, IN_PART, FAILS, NOT_TESTED = Verdict


def findings(*verdicts: Verdict) -> list[Finding]:
    return [Finding("a statement", verdict, "numbers") for verdict in verdicts]


def test_there_are_four_verdicts() -> None:
    assert list(Verdict) == ["holds", "holds in part", "does not hold", "not tested"]


@pytest.mark.parametrize(
    ("holds", "in_part", "verdict"),
    [(True, True, HOLDS), (True, False, HOLDS), (False, True, IN_PART), (False, False, FAILS)],
)
def test_a_verdict_follows_from_the_stricter_condition_first(
    holds: bool, in_part: bool, verdict: Verdict
) -> None:
    assert Verdict.of(holds, in_part) is verdict


@pytest.mark.parametrize(
    ("parts", "whole", "numbers"),
    [
        ([HOLDS, HOLDS], HOLDS, "2 of 2 statements hold, see the figure"),
        ([HOLDS, FAILS], IN_PART, "1 of 2 statements hold, see the figure"),
        ([IN_PART, FAILS], IN_PART, "0 of 2 statements hold, see the figure"),
        ([IN_PART, IN_PART], IN_PART, "0 of 2 statements hold, see the figure"),
        ([FAILS, FAILS], FAILS, "0 of 2 statements hold, see the figure"),
        ([HOLDS, NOT_TESTED], HOLDS, "1 of 1 statements hold, see the figure"),
        ([NOT_TESTED], NOT_TESTED, "no number decides"),
        ([], NOT_TESTED, "no number decides"),
    ],
)
def test_several_findings_make_one(parts: list[Verdict], whole: Verdict, numbers: str) -> None:
    assert together("the claim", findings(*parts)) == Finding("the claim", whole, numbers)


def test_a_finding_is_told_with_its_numbers_first() -> None:
    finding = Finding("The paper's 'less'", IN_PART, "It is 3 of 4")
    assert finding.sentence() == "It is 3 of 4. The paper's 'less': holds in part."


def test_a_finding_on_some_of_the_methods_is_one_so_far() -> None:
    assert Finding("", HOLDS, "", so_far=True).shown_verdict() == "holds, so far"
    assert Finding("", HOLDS, "").shown_verdict() == "holds"


def test_what_is_not_tested_says_what_is_missing() -> None:
    assert not_tested("a claim", "no MAP") == Finding("a claim", NOT_TESTED, "no MAP")


@pytest.mark.parametrize(
    ("value", "shown"), [(1.26, "+1.3"), (-1.26, "−1.3"), (-0.04, "+0.0"), (0.0, "+0.0")]
)
def test_a_difference_is_shown_with_its_sign(value: float, shown: str) -> None:
    assert signed(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(1.256, "+1.26"), (-0.04, "−0.04"), (-0.004, "+0.00")]
)
def test_a_difference_is_shown_with_as_many_digits_as_asked(value: float, shown: str) -> None:
    assert signed(value, 2) == shown


def test_an_estimate_is_a_mean_with_its_standard_error() -> None:
    found = Estimate.of([1.0, 2.0, 6.0])
    assert found.mean == 3
    assert found.error == pytest.approx((7 / 3) ** 0.5)
    assert Estimate.of([2.0]) == Estimate(2.0, None, 1)


@pytest.mark.parametrize(
    ("estimate", "shown", "plain"),
    [
        (Estimate(1.256, 0.344), "+1.26 ± 0.34", "1.3 ± 0.3"),
        (Estimate(-1.256, None), "−1.26", "-1.3"),
        (Estimate(-0.004, 0.0), "+0.00 ± 0.00", "-0.0 ± 0.0"),
    ],
)
def test_an_estimate_is_shown_with_its_error(estimate: Estimate, shown: str, plain: str) -> None:
    assert (str(estimate), estimate.plain(1)) == (shown, plain)


def test_independent_estimates_count_as_much_and_their_errors_add_up_as_squares() -> None:
    few, many = Estimate(1.0, 0.3, 3), Estimate(4.0, 0.4, 300)
    found = Estimate.together([few, many])
    assert (found.mean, found.number) == (2.5, 2 + 299 + 1)  # not 3.97, the mean of all values
    assert found.error == pytest.approx(0.5 / 2)
    assert Estimate.together([few]) == few


def test_together_with_one_that_has_no_error_there_is_none() -> None:
    parts = [Estimate(1.0, 0.1, 3), Estimate(10.0, None, 1)]
    assert Estimate.together(parts) == Estimate(5.5, None, 3)


def test_a_difference_has_the_errors_of_both() -> None:
    found = Estimate(5.0, 0.3, 3).minus(Estimate(2.0, 0.4, 3))
    assert (found.mean, found.number) == (3.0, 5)
    assert found.error == pytest.approx(0.5)
    single = Estimate(6.0, None, 1).minus(Estimate(2.25, None, 1))
    assert single == Estimate(3.75, None, 1)
    assert single.above  # between single runs 3.5 points count


def test_two_columns_of_three_seeds_need_as_many_errors_as_five_values() -> None:
    parts = [Estimate(mean, 1.0, 3) for mean in (1.95, 1.98)]
    assert not Estimate.together(parts).above  # 2.78 errors of 0.707 are 1.966
    assert Estimate.together([*parts[1:], Estimate(1.96, 1.0, 3)]).above


@pytest.mark.parametrize(
    ("mean", "error", "above"),
    [
        (2.1, 1.0, True),
        (2.0, 1.0, False),
        (-3.0, 1.0, False),
        (0.1, 0.0, True),
        (0.0, 0.0, False),
        (3.6, None, True),
        (3.5, None, False),
    ],
)
def test_above_is_two_errors_of_many_values_or_3_and_a_half_points_of_a_single_run(
    mean: float, error: float | None, above: bool
) -> None:
    assert Estimate(mean, error).above is above


@pytest.mark.parametrize("number", range(2, 60))
def test_fewer_values_need_more_standard_errors(number: int) -> None:
    exact = stats.t.ppf(0.975, number - 1)
    assert not Estimate(0.89 * exact, 1.0, number).above
    assert Estimate(1.01 * exact, 1.0, number).above


def test_findings_of_too_few_seeds_have_no_verdict() -> None:
    told = findings(HOLDS, FAILS)
    assert by_seeds(told, 3) == told
    few = by_seeds(told, 2)
    assert [(f.verdict, f.short) for f in few] == [(NOT_TESTED, "2 of 3 seeds")] * 2
    assert together("the claim", few) == not_tested("the claim", "2 of 3 seeds")


def test_the_first_of_several_findings_has_the_number() -> None:
    told = [f._replace(short=short) for f, short in zip(findings(HOLDS, FAILS), "ab", strict=True)]
    assert together("the claim", told).short == "a"
