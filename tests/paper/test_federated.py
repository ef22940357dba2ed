"""The numbers that a study takes from its runs."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedmap.paper import STUDIES
from fedmap.paper.federated import SMOKE, FederatedRun, row, without_diverged
from fedmap.paper.study import Choice, Row
from fedmap.simulate.result import summary

# round by round; of the last ten the first is 0.5
ACCURACIES = [0.9, 0.5, *[0.1] * 8, 0.3]


def records(accuracies: list[float]) -> list[Row]:
    return [
        {"round": t, "global_accuracy": a, "personal_accuracy": a + 0.01}
        for t, a in enumerate(accuracies, 1)
    ]


def finished(diverged: bool = False, column: str = "fashion-mnist/mlp") -> Any:
    """A run as a study sees it, with every number different."""
    rounds = records(ACCURACIES)
    more = {"personal_accuracy_all_clients": 0.77777, "personal_accuracy_per_client": [0.25, 0.75]}
    result = SimpleNamespace(final=summary(rounds) | more, rounds=rounds)
    settings = SimpleNamespace(label="map", method="map", seed=3, rounds=len(rounds))
    return SimpleNamespace(
        column=column,
        group="group 2",
        settings=settings,
        done=lambda root: True,
        diverged=lambda root: diverged,
        result=lambda root: result,
    )


def test_a_row_has_the_last_round_and_the_last_ten_rounds_in_per_cent() -> None:
    assert row(finished(), Path()) == {
        "column": "fashion-mnist/mlp",
        "method": "map",
        "group": "group 2",
        "seed": 3,
        "rounds": 11,
        "outcome": "done",
        "global": 30.0,
        "global_last_10": 16.0,
        "personal": 31.0,
        "personal_last_10": 17.0,
        "personal_all_clients": 77.78,
    }


def test_a_row_of_a_run_that_diverged_has_no_numbers() -> None:
    found = row(finished(diverged=True), Path())
    assert found["outcome"] == "diverged"
    numbers = [name for name, value in found.items() if value is None]
    assert len(numbers) == 5


def test_a_group_that_diverged_once_is_left_out_everywhere() -> None:
    def run(group: str, seed: int, outcome: str) -> Row:
        where = {"column": "c", "method": "map", "group": group, "seed": seed}
        return where | {"outcome": outcome}

    rows = [run("one", 0, "done"), run("one", 1, "diverged"), run("two", 0, "done")]
    kept, sentences = without_diverged(rows)
    assert kept == rows[2:]
    assert sentences == ["map (one) on c, seed 1, diverged; this group is left out."]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fairness", [{"client": 0, "accuracy": 25.0}, {"client": 1, "accuracy": 75.0}]),
        (
            "femnist",
            [
                {"round": t, "global": round(100 * a, 2), "personal": round(100 * a + 1, 2)}
                for t, a in enumerate(ACCURACIES, 1)
            ],
        ),
    ],
)
def test_studies_of_clients_and_rounds_collect_per_cent(
    name: str, expected: list[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = STUDIES[name]
    runs = [finished(), finished(diverged=True)]
    monkeypatch.setattr(type(study), "work", lambda study, choice: runs)
    where = {"column": "fashion-mnist/mlp", "method": "map", "seed": 3}
    assert study.collect(Choice("paper"), Path()) == [where | numbers for numbers in expected]


def test_a_run_that_diverges_is_marked_and_does_not_stop_the_study(tmp_path: Path) -> None:
    given: dict[str, Any] = {**SMOKE, "net": "mlp", "method": "fedavg"}
    lost = FederatedRun(Choice("smoke"), "fashion-mnist/mlp", lr=1e8, **given)
    messages: list[str] = []
    lost.go(tmp_path, lambda step, message: messages.append(message))
    assert messages[-1] == "diverged"
    assert lost.done(tmp_path)
    assert row(lost, tmp_path)["outcome"] == "diverged"
