"""How a statement of the paper fares with our numbers: a verdict, and the numbers behind it in
words."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """What our numbers say of a statement."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    NOT_TESTED = "not tested"  # the numbers that decide are not there

    @classmethod
    def of(cls, holds: bool, in_part: bool) -> "Verdict":
        """The verdict by two conditions, the stricter one first."""
        return cls.HOLDS if holds else cls.IN_PART if in_part else cls.FAILS


class Finding(NamedTuple):
    """A statement of the paper, our verdict, and the numbers behind it."""

    statement: str
    verdict: Verdict
    numbers: str  # in words, without a full stop
    so_far: bool = False  # some methods that the statement speaks of were not run

    def sentence(self) -> str:
        """All of it, for a reader."""
        return f"{self.numbers}. {self.statement}: {self.shown_verdict()}."

    def shown_verdict(self) -> str:
        """The verdict, with its reservation."""
        return self.verdict + (", so far" if self.so_far else "")


def not_tested(statement: str, missing: str) -> Finding:
    """The finding where the numbers that decide are not there."""
    return Finding(statement, Verdict.NOT_TESTED, missing)


def together(statement: str, findings: Sequence[Finding], numbers: str | None = None) -> Finding:
    """One finding for several: it holds where all hold, and in part where any does, even if only
    in part. What was not tested does not count."""
    verdicts = [finding.verdict for finding in findings if finding.verdict != Verdict.NOT_TESTED]
    if not verdicts:
        return not_tested(statement, "no number decides")
    held = verdicts.count(Verdict.HOLDS)
    some = held or Verdict.IN_PART in verdicts
    verdict = Verdict.of(held == len(verdicts), bool(some))
    count = f"{held} of {len(verdicts)} statements hold, see the figure"
    return Finding(statement, verdict, numbers or count)


def signed(value: float) -> str:
    """A difference with its sign, to one decimal: +0.3 or −0.3, never −0.0."""
    return f"{value:+z.1f}".replace("-", "−")
