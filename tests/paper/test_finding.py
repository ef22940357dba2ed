import pytest

from fedmap.paper.finding import Finding, Verdict, not_tested, signed, together

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
