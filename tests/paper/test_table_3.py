from collections.abc import Callable
from typing import Any

import pytest

from fedmap.paper import STUDIES
from fedmap.paper.finding import Verdict, signed
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


@pytest.mark.usefixtures("one_seed_is_enough")
def test_numbers_are_means_over_columns_and_seeds(run_row: RunRow) -> None:
    rows = [
        run_row("fedavg", (60.0, 70.0), (61.0, 72.0), column=LENET),
        run_row("fedavg", (64.0, 74.0), (65.0, 76.0), column=LENET, seed=1),
        run_row("fedavg", (50.0, 80.0), (51.0, 82.0), column=TFCNN),
        run_row("fedavg", (54.0, 88.0), (55.0, 86.0), column=TFCNN, seed=1),
    ]
    table = TABLE_3.report(rows).tables["complete"]
    whole = ["58.0 ± 2.8", "-", "57.0", "70.9", "+0.0"]  # 56 and 60 with the two seeds
    own = ["78.0 ± 4.2", "-", "78.0", "72.5", "+0.0"]  # 75 and 81
    assert table.lines == [["FedAvg", *whole, *own]]
    assert table.caption == (
        f"Complete classes, accuracy in %, average over {LENET}, {TFCNN} ± standard deviation over "
        "seeds, and differences ± standard error; the paper's average is over its three columns, "
        "so compare differences"
    )


def test_each_line_stands_beside_fedavg_here_and_in_the_paper(run_row: RunRow) -> None:
    rows = [
        run_row("fedavg", (60.0, 70.0), (61.0, 72.0), column=LENET),
        run_row("map", (66.0, 71.0), (60.0, 75.5), column=LENET, group=PRINTED),
    ]
    line = TABLE_3.report(rows).tables["complete"].lines[1]
    assert line[0] == f"MAP ({PRINTED})"
    assert line[1:6] == ["60.0", "−1.00", "66.0", "73.0", "+2.1"]
    assert line[6:] == ["71.0", "+1.00 ± 0.00", "71.0", "75.6", "+3.2"]


@pytest.mark.usefixtures("one_seed_is_enough")
def test_a_column_that_some_method_lacks_is_left_out(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0, 80.0), column=c) for c in (LENET, TFCNN)]
    rows.append(run_row("ditto", (50.0, 60.0), column=TFCNN))
    report = TABLE_3.report(rows)
    assert f"average over {TFCNN} ± standard" in report.tables["complete"].caption
    assert report.notes == [
        f"{LENET} is left out of the averages: 1 of 2 rows have enough seeds there."
    ]


@pytest.mark.usefixtures("one_seed_is_enough")
def test_a_group_that_diverged_in_one_column_is_left_out(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0, 80.0), column=c) for c in (LENET, TFCNN)]
    rows += [run_row("ditto", (50.0, 60.0), column=LENET)]
    rows += [run_row("ditto", (None, None), column=TFCNN)]
    report = TABLE_3.report(rows)
    assert [line[0] for line in report.tables["complete"].lines] == ["FedAvg"]
    assert report.notes == [
        f"ditto (default) on {TFCNN}, seed 0, diverged; this group is left out."
    ]


def test_without_enough_seeds_anywhere_the_table_has_the_whole_columns(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0, 80.0), column=c, rounds=60) for c in (LENET, TFCNN)]
    rows.append(run_row("ditto", (50.0, 60.0), column=TFCNN, rounds=60))
    report = TABLE_3.report(rows)
    assert f"average over {TFCNN} ± standard" in report.tables["complete"].caption
    assert report.notes == [
        f"{LENET} is left out of the averages: 1 of 2 rows have a number there."
    ]


def test_table_and_claim_rest_on_the_same_columns(
    run_row: RunRow, thrice: Callable[[list[Row]], list[Row]]
) -> None:
    both = [run_row("fedavg", (70.0, 80.0)), run_row("map", (75.0, 85.0), group=RELEASED)]
    whole = thrice([r | {"column": LENET} for r in both])
    one = [r | {"column": TFCNN, "rounds": 60, "global_last_10": 10.0} for r in both]
    assert TABLE_3.report([*whole, *one]).tables == TABLE_3.report(whole).tables
    assert FIRST.judge([*whole, *one]) == FIRST.judge(whole)


def test_notes_set_each_reading_against_fedavg(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (0.0, 80.0), (70.0, 0.0), column=LENET)]
    rows.append(run_row("map", (0.0, 78.0), (71.0, 0.0), column=LENET, group=RELEASED))
    assert TABLE_3.report(rows).notes == [
        f"MAP ({RELEASED}) from FedAvg: +1.00 global and −2.00 ± 0.00 personal."
    ]
    assert TABLE_3.report(rows[1:]).notes == []


def at(
    run_row: RunRow, method: str, both: tuple[float, float], group: str = "default"
) -> list[Row]:
    """Three seeds with these accuracies."""
    return [
        run_row(method, (0.0, both[1]), (both[0], 0.0), column=LENET, group=group, seed=seed)
        for seed in range(3)
    ]


@pytest.mark.parametrize(
    ("printed", "released", "verdict"),
    [
        ((70.0, 80.0), (76.0, 86.0), Verdict.HOLDS),
        ((76.0, 80.0), (70.0, 86.0), Verdict.IN_PART),  # one reading must do for both
        ((70.0, 80.0), (76.0, 84.0), Verdict.IN_PART),
        ((70.0, 80.0), (74.0, 86.0), Verdict.IN_PART),
        ((70.0, 86.0), (72.0, 84.0), Verdict.IN_PART),
        ((70.0, 80.0), (74.0, 84.0), Verdict.FAILS),  # above FedAvg in both, and first in none
        ((70.0, 80.0), (72.0, 79.0), Verdict.FAILS),
        ((71.0, 81.0), (69.0, 79.0), Verdict.FAILS),
    ],
)
def test_map_with_one_reading_is_first_in_both(
    printed: tuple[float, float],
    released: tuple[float, float],
    verdict: Verdict,
    run_row: RunRow,
) -> None:
    rows = at(run_row, "fedavg", (71.0, 81.0)) + at(run_row, "fedrs", (75.0, 85.0), PRINTED)
    rows += at(run_row, "map", printed, PRINTED) + at(run_row, "map", released, RELEASED)
    finding = FIRST.judge(rows)
    assert finding.verdict is verdict
    best = f"FedRS ({PRINTED})"
    gains, beside = (
        [f"{signed(a - b, 2)} ± 0.00" for a, b in zip(released, other, strict=True)]
        for other in ((71.0, 81.0), (75.0, 85.0))
    )
    rivals = f"global {beside[0]} from {best} and personal {beside[1]} from {best}"
    losses = [f"{signed(a - b, 2)} ± 0.00" for a, b in zip(printed, (71.0, 81.0), strict=True)]
    assert finding.short == (
        f"{PRINTED}: {losses[0]} global and {losses[1]} personal from FedAvg; {RELEASED}: "
        f"{rivals}, the best others, 1 of 3 columns"
    )
    assert finding.numbers.endswith(
        f"; {RELEASED}: {gains[0]} global and {gains[1]} personal from FedAvg; beside the best "
        f"others, MAP ({RELEASED}) is {rivals}"
    )
    assert finding.numbers.startswith(f"{PRINTED}: {signed(printed[0] - 71, 2)} ± 0.00 global and ")
    assert finding.so_far
    every = [r | {"column": column} for column in TABLE_3.columns for r in rows]
    assert FIRST.judge(every).shown_verdict() == verdict


def test_the_best_others_are_the_highest_means_of_each_goal(run_row: RunRow) -> None:
    rows = at(run_row, "fedavg", (71.0, 81.0)) + at(run_row, "map", (76.0, 86.0), RELEASED)
    rows += at(run_row, "feddyn", (78.5, 80.0)) + at(run_row, "ditto", (70.0, 85.75))
    finding = FIRST.judge(rows)
    assert finding.verdict is Verdict.IN_PART  # first for persons
    rivals = "global −2.50 ± 0.00 from FedDyn and personal +0.25 ± 0.00 from Ditto"
    assert finding.short == f"{RELEASED}: {rivals}, the best others, 1 of 3 columns"
    assert finding.numbers.endswith(f"; beside the best others, MAP ({RELEASED}) is {rivals}")


def test_fedrs_with_the_same_factors_does_not_count_globally(run_row: RunRow) -> None:
    rows = at(run_row, "fedavg", (71.0, 81.0)) + at(run_row, "map", (76.0, 86.0), RELEASED)
    same = at(run_row, "fedrs", (76.0, 80.0), RELEASED)
    finding = FIRST.judge(rows + same)
    assert finding.verdict is Verdict.HOLDS
    rivals = "global +5.00 ± 0.00 from FedAvg and personal +5.00 ± 0.00 from FedAvg"
    assert finding.short == f"{RELEASED}: {rivals}, the best others, 1 of 3 columns"
    for other in (PRINTED, KEPT):  # trained with other factors
        as_good = at(run_row, "fedrs", (76.0, 80.0), other)
        assert FIRST.judge(rows + as_good).verdict is Verdict.IN_PART
    better = at(run_row, "fedrs", (76.0, 87.0), RELEASED)
    assert FIRST.judge(rows + better).verdict is Verdict.IN_PART  # above MAP personally
    printed = at(run_row, "fedavg", (71.0, 81.0)) + at(run_row, "map", (76.0, 86.0), PRINTED)
    kept = at(run_row, "fedrs", (76.0, 80.0), KEPT)  # the training with the printed factors
    assert FIRST.judge(printed + kept).verdict is Verdict.HOLDS


@pytest.mark.parametrize(("gain", "verdict"), [(2.4, Verdict.FAILS), (2.6, Verdict.IN_PART)])
def test_the_highest_mean_must_also_be_above_fedavg_by_more_than_chance(
    gain: float, verdict: Verdict, run_row: RunRow
) -> None:
    rows = at(run_row, "fedavg", (71.0, 81.0)) + [
        r | {"global_last_10": 70.0 + gain + r["seed"]}
        for r in at(run_row, "map", (0.0, 80.0), RELEASED)
    ]
    finding = FIRST.judge(rows)  # 4.3 standard errors of 0.577 are 2.48
    assert finding.verdict is verdict
    gains = f"global +{gain:.2f} ± 0.58 from FedAvg and personal −1.00 "
    assert finding.short.startswith(f"{RELEASED}: {gains}")


def test_without_map_or_fedavg_or_with_two_seeds_the_claim_is_not_tested(run_row: RunRow) -> None:
    plain, ours = at(run_row, "fedavg", (70.0, 80.0)), at(run_row, "map", (71.0, 81.0), RELEASED)
    assert FIRST.judge(plain + ours).verdict is Verdict.HOLDS
    for rows in (plain, ours, plain[:2] + ours[:2]):
        assert FIRST.judge(rows).verdict is Verdict.NOT_TESTED
    other = FIRST.judge(plain + at(run_row, "map", (71.0, 81.0), PRINTED))
    rivals = "global +1.00 ± 0.00 from FedAvg and personal +1.00 ± 0.00 from FedAvg"
    assert other.short == f"{PRINTED}: {rivals}, the best others, 1 of 3 columns"
    assert other.numbers.endswith(f"; beside the best others, MAP ({PRINTED}) is {rivals}")
