"""The numbers that a study takes from its runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmap.paper.federated import (
    SMOKE,
    FederatedRun,
    cut,
    map_beside_fedavg,
    row,
    without_diverged,
    words,
)
from fedmap.paper.study import Choice, Row

FinishedRun = Callable[..., Any]
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"
# round by round; of the last ten the first is 0.5
ACCURACIES = [0.9, 0.5, *[0.1] * 8, 0.3]


def test_a_row_has_the_last_round_and_the_last_ten_rounds_in_per_cent(
    finished_run: FinishedRun,
) -> None:
    assert row(finished_run(ACCURACIES), Path()) == {
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


def test_a_row_of_a_run_that_diverged_has_no_numbers(finished_run: FinishedRun) -> None:
    found = row(finished_run(ACCURACIES, diverged=True), Path())
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


def test_a_run_that_diverges_is_marked_and_does_not_stop_the_study(tmp_path: Path) -> None:
    given: dict[str, Any] = {**SMOKE, "net": "mlp", "method": "fedavg"}
    lost = FederatedRun(Choice("smoke"), MLP, lr=1e8, **given)
    messages: list[str] = []
    lost.go(tmp_path, lambda step, message: messages.append(message))
    assert messages[-1] == "diverged"
    assert lost.done(tmp_path)
    assert row(lost, tmp_path)["outcome"] == "diverged"


def test_the_small_scale_is_the_one_that_the_page_tells_of(reproduction: str) -> None:
    assert f"Smaller than the paper: {', '.join(words(cut('small')))}, " in reproduction


def test_a_run_is_called_by_its_method_group_column_and_seed() -> None:
    given: dict[str, Any] = {**SMOKE, "net": "mlp", "method": "map", "seed": 4}
    assert FederatedRun(Choice("smoke"), MLP, **given).label == f"map {MLP} #4"
    grouped = FederatedRun(Choice("smoke"), MLP, "alpha 0.1", **given)
    assert grouped.label == f"map (alpha 0.1) {MLP} #4"


def test_variants_of_map_stand_beside_fedavg_in_every_column_with_every_seed() -> None:
    choice = Choice("smoke", columns=(MLP, LENET), seeds=(0, 1))
    runs = map_beside_fedavg(choice, {"a": {"alpha": 0.1}, "b": {"alpha": 0.2}})
    found = [(r.column, r.settings.seed, r.settings.method, r.group) for r in runs]
    three = [("fedavg", "default"), ("map", "a"), ("map", "b")]
    assert found == [(c, s, *which) for c in (MLP, LENET) for s in (0, 1) for which in three]
    assert [run.settings.params.get("alpha") for run in runs[:3]] == [None, 0.1, 0.2]
