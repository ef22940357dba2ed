"""Which round to keep, by the samples that clients hold out for it. It follows from the records
alone, so a run that was stopped and resumed chooses the same."""

from collections.abc import Sequence
from typing import Any

SCORES = ("global_accuracy_validation", "personal_accuracy_validation")


def score(record: dict[str, Any]) -> float | None:
    """The mean of both accuracies on held-out samples, or the one that there is."""
    known = [record[name] for name in SCORES if record.get(name) is not None]
    return sum(known) / len(known) if known else None


def best_round(records: Sequence[dict[str, Any]]) -> int | None:
    """The first round with the highest score; None where nothing is held out."""
    scores = {record["round"]: value for record in records if (value := score(record)) is not None}
    return max(scores, key=lambda round: scores[round], default=None)


def enough(records: Sequence[dict[str, Any]], patience: int | None) -> bool:
    """Has there been no better round for as many rounds as the patience lasts?"""
    best = best_round(records)
    return patience is not None and best is not None and len(records) - best >= patience
