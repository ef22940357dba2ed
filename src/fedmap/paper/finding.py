"""How a statement of the paper fares with our numbers: a verdict, and the numbers behind it in
words."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from math import hypot
from statistics import mean, stdev
from typing import Any, NamedTuple

SEEDS = 3  # that a verdict needs, where a run takes less than an hour
# How many standard errors a mean of so many values must be away from zero, for 95 % of certainty
# (Student's t); of more values it is two.
STUDENT = {
    2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 11: 2.23,
}  # fmt: skip
# Points that a difference between two single runs must have to count: twice the standard deviation
# over seeds that half of all methods' gains over FedAvg stay below on the leaderboard's CIFAR-10.
RESOLVED = 3.5


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
    short: str = ""  # the one number that matters most, with its error
    so_far: bool = False  # some methods that the statement speaks of were not run

    def sentence(self) -> str:
        """All of it, for a reader."""
        return f"{self.numbers}. {self.statement}: {self.shown_verdict()}."

    def shown_verdict(self) -> str:
        """The verdict, with its reservation."""
        return self.verdict + (", so far" if self.so_far else "")


class Estimate(NamedTuple):
    """A mean, mostly of differences in points, and its standard error where there are several."""

    mean: float
    error: float | None
    number: int = 1000  # of the values that it is the mean of

    @classmethod
    def of(cls, values: Sequence[float]) -> "Estimate":
        """Of at least one value."""
        error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
        return cls(mean(values), error, len(values))

    @classmethod
    def of_columns(cls, columns: Sequence[Sequence[float]], paired: bool) -> "Estimate":
        """The mean of columns, each of which counts as much. Paired: their values belong together,
        one by one, and need not be independent."""
        if paired:
            return cls.of([mean(joined) for joined in zip(*columns, strict=True)])
        return cls.together([cls.of(column) for column in columns])

    @classmethod
    def together(cls, parts: Sequence["Estimate"]) -> "Estimate":
        """The mean of independent ones, each of which counts as much, however many values it has.
        Without an error where one has none."""
        errors = [part.error for part in parts if part.error is not None]
        error = hypot(*errors) / len(parts) if len(errors) == len(parts) else None
        free = sum(part.number - 1 for part in parts)  # degrees of freedom
        return cls(mean(part.mean for part in parts), error, free + 1)

    def minus(self, other: "Estimate") -> "Estimate":
        """The difference of two independent ones."""
        half = Estimate.together([self, other._replace(mean=-other.mean)])
        return half._replace(mean=2 * half.mean, error=half.error and 2 * half.error)

    def __str__(self) -> str:
        return signed(self.mean, 2) + ("" if self.error is None else f" ± {self.error:.2f}")

    def plain(self, digits: int) -> str:
        """Without the sign of a difference."""
        error = "" if self.error is None else f" ± {self.error:.{digits}f}"
        return f"{self.mean:.{digits}f}{error}"

    @property
    def above(self) -> bool:
        """Above zero by more than chance."""
        return self.mean > self.chance

    @property
    def chance(self) -> float:
        """How far from zero it may be by chance."""
        if self.error is None:
            return RESOLVED
        return STUDENT.get(self.number, 2.0) * self.error


def not_tested(statement: str, missing: str) -> Finding:
    """The finding where the numbers that decide are not there."""
    return Finding(statement, Verdict.NOT_TESTED, missing)


def together(statement: str, findings: Sequence[Finding], numbers: str | None = None) -> Finding:
    """One finding for several: it holds where all hold, and in part where any does, even if only
    in part. What was not tested does not count."""
    verdicts = [finding.verdict for finding in findings if finding.verdict != Verdict.NOT_TESTED]
    short = next((finding.short for finding in findings if finding.short), "")
    if not verdicts:
        return not_tested(statement, short or "no number decides")
    held = verdicts.count(Verdict.HOLDS)
    some = held or Verdict.IN_PART in verdicts
    verdict = Verdict.of(held == len(verdicts), bool(some))
    count = f"{held} of {len(verdicts)} statements hold, see the figure"
    return Finding(statement, verdict, numbers or count, short)


def all_statements(
    claim: str, rows: list[dict[str, Any]], findings: Callable[[list[Any]], Sequence[Finding]]
) -> Finding:
    """All statements of the figure hold; in part: one does, or does in part."""
    return together(claim, findings(rows))


def by_seeds(findings: Sequence[Finding], seeds: int) -> list[Finding]:
    """The findings as they are, or without a verdict where there are too few seeds for one."""
    if seeds >= SEEDS:
        return list(findings)
    few = f"{seeds} of {SEEDS} seeds"
    return [f._replace(verdict=Verdict.NOT_TESTED, short=few) for f in findings]


def signed(value: float, digits: int = 1) -> str:
    """A difference with its sign: +0.3 or −0.3, never −0.0."""
    return f"{value:+z.{digits}f}".replace("-", "−")
