from collections.abc import Callable
from typing import Any

import pytest

from fedmap.paper import STUDIES
from fedmap.paper.study import Row

RunRow = Callable[..., Row]
READINGS = STUDIES["readings"]
LENET = "fashion-mnist/lenet"
READING = "printed, alpha 0.5"


@pytest.fixture
def rows(run_row: RunRow) -> list[Row]:
    """Two seeds each; the global accuracy is 10 below the personal one, and the mean of the last
    ten rounds 1 below the last round."""
    found: dict[str, list[float | None]] = {
        "default": [80.0, 90.0],
        "released, alpha 0.9": [81.0, 90.5],
        "released, alpha 0.5": [85.0, 84.0],
        "printed, alpha 0.9": [85.0, None],
    }
    rows = []
    for group, both in found.items():
        for seed, value in enumerate(both):
            last = (None, None) if value is None else (value - 10, value)
            steady = (None, None) if value is None else (value - 11, value - 1)
            more = {"personal_all_clients": value and value + 3}
            where = {"column": LENET, "group": group, "seed": seed}
            rows.append(run_row("map", last, steady, **where, **more))
    return rows


def test_the_work_is_fedavg_and_both_schedules_with_three_alphas() -> None:
    runs: Any = READINGS.work(READINGS.choice("paper", columns=[LENET]))
    released = runs[4].settings
    assert [run.settings.method for run in runs] == ["fedavg", *["map"] * 6]
    assert runs[4].group == "released, alpha 0.9"
    assert (released.params["alpha"], released.params["stage_two"]) == (0.9, 0.1)
    alphas = [run.settings.params["alpha"] for run in runs[1:]]
    assert alphas == [0.9, 0.5, 0.1, 0.9, 0.5, 0.1]


def test_a_run_that_diverged_is_named_and_nothing_else_is_noted(
    rows: list[Row], run_row: RunRow
) -> None:
    lost = f"MAP (printed, alpha 0.9) on {LENET}, seed 1, diverged and is left out."
    assert READINGS.report(rows).notes == [lost]
    more = [*rows, run_row("fedavg", (None, None), seed=2)]
    plain = "FedAvg on fashion-mnist/mlp, seed 2, diverged and is left out."
    assert READINGS.report(more).notes == [lost, plain]


def test_a_reading_above_fedavg_is_told_by_its_differences_alone(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("map", (81.0, 92.0), group=READING)]
    report = READINGS.report(rows)
    assert (report.notes, report.findings) == ([], [])
    line = report.tables["readings"].lines[1]
    assert line == [f"MAP, {READING}", "81.0 (+1.0)", "92.0 (+2.0)", "92.0 (+2.0)"]


def test_a_cell_has_mean_spread_and_the_difference_from_fedavg_with_the_same_seed(
    rows: list[Row],
) -> None:
    cells = {line[0]: line[1:] for line in READINGS.report(rows).tables["last-round"].lines}
    assert cells == {
        "FedAvg": ["75.0 ± 7.1", "85.0 ± 7.1", "88.0 ± 7.1"],
        "MAP, released, alpha 0.9": ["75.8 ± 6.7 (+0.8)", "85.8 ± 6.7 (+0.8)", "88.8 ± 6.7 (+0.8)"],
        "MAP, released, alpha 0.5": ["74.5 ± 0.7 (−0.5)", "84.5 ± 0.7 (−0.5)", "87.5 ± 0.7 (−0.5)"],
        "MAP, printed, alpha 0.9": [
            "75.0 (+5.0) diverged",
            "85.0 (+5.0) diverged",
            "88.0 (+5.0) diverged",
        ],
    }


def test_the_steadier_table_has_the_last_ten_rounds(rows: list[Row]) -> None:
    table = READINGS.report(rows).tables["readings"]
    assert table.lines[0] == ["FedAvg", "74.0 ± 7.1", "84.0 ± 7.1", "88.0 ± 7.1"]
    goals = ("global", "personal", "personal, all clients")
    assert table.head == ["run", *(f"{LENET} {goal}" for goal in goals)]


def test_captions_say_which_rounds_which_seeds_and_the_unit(rows: list[Row]) -> None:
    captions = [table.caption for table in READINGS.report(rows).tables.values()]
    about = (
        "accuracy in % (seeds 0, 1; in brackets the mean difference from FedAvg with the same seed)"
    )
    assert captions == [
        f"Mean of the last ten rounds (all clients: after the last), {about}",
        f"Last round, {about}",
    ]


def test_a_run_that_is_not_there_is_a_dash(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("fedavg", (80.0, 90.0), column=LENET)]
    rows.append(run_row("map", (81.0, 91.0), group="printed, alpha 0.1"))
    line = READINGS.report(rows).tables["last-round"].lines[1]
    assert line[1:] == ["81.0 (+1.0)", "91.0 (+1.0)", "91.0 (+1.0)", "-", "-", "-"]
