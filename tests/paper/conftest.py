"""Rows as the studies collect them, written by hand."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedmap.paper.study import Row
from fedmap.simulate.result import summary

RunRow = Callable[..., Row]
Pair = tuple[float | None, float | None]


@pytest.fixture
def run_row() -> RunRow:
    """A row of one federated run, from its global and personal accuracy."""

    def build(method: str, last: Pair, last_10: Pair | None = None, **where: object) -> Row:
        steady = last if last_10 is None else last_10
        row = {
            "column": "fashion-mnist/mlp",
            "method": method,
            "group": "default",
            "seed": 0,
            "rounds": 150,
            "clip": None,
            "outcome": "diverged" if last == (None, None) else "done",
            "global": last[0],
            "global_last_10": steady[0],
            "personal": last[1],
            "personal_last_10": steady[1],
            "personal_all_clients": last[1],
            "per_client": None if last[1] is None else f"{last[1]:.2f} {last[1]:.2f}",
        }
        return row | where

    return build


@pytest.fixture
def finished_run() -> Callable[..., Any]:
    """A run as a study sees it; its accuracies are by round, or by client after the last."""

    def build(
        accuracies: list[float], done: bool = True, diverged: bool = False, **where: Any
    ) -> Any:
        rounds = [
            {
                "round": t,
                "global_accuracy": a,
                "personal_accuracy": a + 0.01,
                "personal_accuracy_download": a - 0.01,
            }
            for t, a in enumerate(accuracies, 1)
        ]
        final = summary(rounds) | {
            "personal_accuracy_all_clients": 0.77777,
            "personal_accuracy_per_client": accuracies,
        }
        settings = SimpleNamespace(label="map", method="map", seed=3, rounds=len(rounds), clip=9.0)
        run = SimpleNamespace(
            column="fashion-mnist/mlp",
            group="group 2",
            name="run",
            settings=settings,
            done=lambda root: done,
            diverged=lambda root: diverged,
            result=lambda root: SimpleNamespace(final=final, rounds=rounds),
        )
        vars(run).update(where)
        return run

    return build


@pytest.fixture
def reproduction() -> str:
    """The studies' pages, as they are kept, without line breaks."""
    pages = sorted((Path(__file__).parents[2] / "docs" / "reproduction").glob("*.md"))
    return " ".join(" ".join(page.read_text().split()) for page in pages)


@pytest.fixture
def one_seed_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """For rules that are about other things than the number of seeds."""
    for module in ("finding", "federated"):
        monkeypatch.setattr(f"fedmap.paper.{module}.SEEDS", 1)


@pytest.fixture
def thrice() -> Callable[[list[Row]], list[Row]]:
    """The rows again for the seeds 1 and 2."""
    return lambda rows: [r | {"seed": seed} for seed in range(3) for r in rows]
