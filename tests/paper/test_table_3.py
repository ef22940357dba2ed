from collections.abc import Callable
from typing import Any

import pytest

from fedmap.paper import STUDIES
from fedmap.paper.finding import Verdict
from fedmap.paper.report import size_in_words
from fedmap.paper.study import Row
from fedmap.paper.tables.table_3 import KEPT, SHARES

RunRow = Callable[..., Row]
TABLE_3 = STUDIES["table-3"]
LENET, TFCNN, VGG = TABLE_3.columns
PRINTED, RELEASED, HALF = SHARES
(FIRST,) = TABLE_3.claims()


def test_fedrs_and_map_run_with_the_printed_and_the_released_factors() -> None:
    choice = TABLE_3.choice("small", columns=[LENET], methods=["fedavg", "map", "fedrs"])
    runs: Any = TABLE_3.work(choice)
    readings = [PRINTED, RELEASED, HALF]
    assert [run.group for run in runs] == ["default", *readings, *readings, KEPT]
    params = [run.settings.params for run in runs[1:]]
    assert [p["mode"] for p in params] == ["share", "soft", "soft"] * 2 + ["share"]
    assert [params[i]["alpha"] for i in (1, 2, 4, 5)] == [0.9, 0.5] * 2
    assert [p["factors"] for p in params[3:]] == [False, False, False, True]
    for run in runs:
        scene = (run.settings.partition, run.settings.partition_params["alpha"])
        assert scene == ("dirichlet", 0.5)


def test_the_page_says_what_the_small_scale_cuts(reproduction: str) -> None:
    assert size_in_words(TABLE_3.cuts("small")) in reproduction


def test_numbers_are_means_over_columns_and_seeds(run_row: RunRow) -> None:
    rows = [
        run_row("fedavg", (60.0, 70.0), (61.0, 72.0), column=LENET),
        run_row("fedavg", (64.0, 74.0), (65.0, 76.0), column=LENET, seed=1),
        run_row("fedavg", (50.0, 80.0), (51.0, 82.0), column=TFCNN),
        run_row("fedavg", (54.0, 88.0), (55.0, 86.0), column=TFCNN, seed=1),
    ]
    table = TABLE_3.report(rows).tables["complete"]
    assert table.lines == [
        ["FedAvg", "57.0", "58.0", "+0.0", "70.9", "+0.0", "78.0", "79.0", "+0.0", "72.5", "+0.0"]
    ]
    assert table.caption == f"Complete classes, accuracy in %, average over {LENET}, {TFCNN}"


def test_each_line_stands_beside_fedavg_here_and_in_the_paper(run_row: RunRow) -> None:
    rows = [
        run_row("fedavg", (60.0, 70.0), (61.0, 72.0), column=LENET),
        run_row("map", (66.0, 71.0), (60.0, 75.5), column=LENET, group=PRINTED),
    ]
    line = TABLE_3.report(rows).tables["complete"].lines[1]
    assert line[0] == f"MAP ({PRINTED})"
    assert line[1:6] == ["66.0", "60.0", "−1.0", "73.0", "+2.1"]
    assert line[6:] == ["71.0", "75.5", "+3.5", "75.6", "+3.2"]


def test_only_all_columns_are_compared_with_the_papers_average(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0, 73.0), column=c) for c in TABLE_3.columns]
    table = TABLE_3.report(rows).tables["complete"]
    assert table.head[6] == table.head[12] == "difference"
    assert (table.lines[0][6], table.lines[0][12]) == ("−0.9", "+0.5")
    assert "difference" not in TABLE_3.report(rows[:2]).tables["complete"].head


def test_a_column_that_some_method_lacks_is_left_out(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0, 80.0), column=c) for c in (LENET, TFCNN)]
    rows.append(run_row("ditto", (50.0, 60.0), column=TFCNN))
    report = TABLE_3.report(rows)
    assert report.tables["complete"].caption.endswith(f"average over {TFCNN}")
    assert report.notes == [
        f"{LENET} is left out of the averages: 1 of 2 rows have a number there."
    ]


def test_a_group_that_diverged_in_one_column_is_left_out(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0, 80.0), column=c) for c in (LENET, TFCNN)]
    rows += [run_row("ditto", (50.0, 60.0), column=LENET)]
    rows += [run_row("ditto", (None, None), column=TFCNN)]
    report = TABLE_3.report(rows)
    assert [line[0] for line in report.tables["complete"].lines] == ["FedAvg"]
    assert report.notes == [
        f"ditto (default) on {TFCNN}, seed 0, diverged; this group is left out."
    ]


def test_notes_set_each_reading_against_fedavg(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (0.0, 0.0), (70.0, 80.0), column=LENET)]
    rows.append(run_row("map", (0.0, 0.0), (71.0, 78.0), column=LENET, group=RELEASED))
    begin = "mean of the last ten rounds: map with factors released, alpha 0.9 is"
    assert TABLE_3.report(rows).notes == [
        f"global, {begin} +1.0 points from FedAvg.",
        f"personal, {begin} −2.0 points from FedAvg.",
    ]
    assert TABLE_3.report(rows[1:]).notes == []


@pytest.mark.parametrize(
    ("printed", "released", "verdict"),
    [
        ((70.0, 80.0), (76.0, 86.0), Verdict.HOLDS),
        ((76.0, 80.0), (70.0, 86.0), Verdict.HOLDS),
        ((70.0, 80.0), (76.0, 84.0), Verdict.IN_PART),
        ((70.0, 80.0), (75.0, 85.0), Verdict.IN_PART),
        ((70.0, 80.0), (72.0, 79.0), Verdict.IN_PART),
        ((70.0, 80.0), (69.0, 79.0), Verdict.FAILS),
        ((71.0, 81.0), (69.0, 79.0), Verdict.FAILS),
    ],
)
def test_map_with_its_better_reading_is_first_in_both(
    printed: tuple[float, float],
    released: tuple[float, float],
    verdict: Verdict,
    run_row: RunRow,
) -> None:
    rows = [
        run_row("fedavg", (0.0, 0.0), (71.0, 81.0), column=LENET),
        run_row("fedrs", (99.0, 99.0), (75.0, 85.0), column=LENET, group=PRINTED),
        run_row("fedrs", (99.0, 99.0), (60.0, 60.0), column=LENET, group=RELEASED),
        run_row("map", (0.0, 0.0), printed, column=LENET, group=PRINTED),
        run_row("map", (0.0, 0.0), released, column=LENET, group=RELEASED),
    ]
    finding = FIRST.judge(rows)
    assert finding.verdict is verdict
    assert finding.numbers == "; ".join(
        f"{goal}: MAP {printed[i]:.1f} with {PRINTED}, {released[i]:.1f} with {RELEASED}; FedAvg "
        f"{(71.0, 81.0)[i]:.1f}; the best other is fedrs with {(75.0, 85.0)[i]:.1f}"
        for i, goal in enumerate(("global", "personal"))
    )


def test_without_map_or_fedavg_the_claim_is_not_tested(run_row: RunRow) -> None:
    for method in ("map", "fedavg"):
        assert FIRST.judge([run_row(method, (1.0, 1.0))]).verdict is Verdict.NOT_TESTED


def test_map_and_fedavg_alone_decide_the_claim(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0, 80.0)), run_row("map", (71.0, 81.0), group=RELEASED)]
    assert FIRST.judge(rows).verdict is Verdict.HOLDS
