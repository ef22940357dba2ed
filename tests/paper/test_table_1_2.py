from collections.abc import Callable
from statistics import stdev
from typing import Any

import pytest

from fedmap.paper import STUDIES
from fedmap.paper.finding import Verdict
from fedmap.paper.study import GOALS, Claim, Row
from fedmap.paper.tables.table_1_2 import METHODS_OF, best, cells, goal_table, notes

RunRow = Callable[..., Row]
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"
TABLES = STUDIES["table-1-2"]
DEFAULTS = [("default", None), ("default", 0.01)]  # FedAvg has no weight
ABOVE, SINGLES, HPM, NOBODY = TABLES.claims()


def params_of(scale: str, **more: object) -> list[tuple[str, object]]:
    choice = TABLES.choice(scale, columns=[MLP], methods=["fedavg", "map"], **more)
    runs: Any = TABLES.work(choice)
    return [(run.group, run.settings.params.get("weight")) for run in runs]


def test_at_the_papers_scale_a_method_has_its_three_groups() -> None:
    groups = [("default", None), ("group 1", 0.1), ("group 2", 0.01), ("group 3", 0.01)]
    assert params_of("paper") == groups


def test_with_defaults_only_a_method_has_one_run() -> None:
    assert params_of("paper", defaults_only=True) == DEFAULTS


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_at_smaller_scales_a_method_has_its_defaults(scale: str) -> None:
    assert params_of(scale) == DEFAULTS


def test_work_is_every_column_seed_and_method() -> None:
    choice = TABLES.choice("smoke", columns=[MLP, LENET], methods=["map", "ditto"], seeds=(0, 5))
    runs: Any = TABLES.work(choice)
    found = [(run.column, run.settings.seed, run.settings.method) for run in runs]
    expected = [(c, seed, m) for c in (MLP, LENET) for seed in (0, 5) for m in ("map", "ditto")]
    assert found == expected


def test_the_papers_scale_cuts_nothing_and_smaller_ones_have_one_group() -> None:
    assert TABLES.cuts("paper") == []
    groups = "default parameters instead of the best of three groups"
    assert TABLES.cuts("small")[-1] == TABLES.cuts("smoke")[-1] == groups


def test_numbers_are_means_over_seeds_with_their_spread(run_row: RunRow) -> None:
    rows = [
        run_row("map", (80.0, 90.0), (70.0, 60.0)),
        run_row("map", (90.0, 91.0), (74.0, 61.0), seed=1),
        run_row("map", (100.0, 98.0), (75.0, 65.0), seed=2),
    ]
    assert best(rows, "map", MLP, "global") == pytest.approx(
        {"last": 90, "last_10": 73, "seeds": 10}
    )
    assert best(rows, "map", MLP, "personal") == pytest.approx(
        {"last": 93, "last_10": 62, "seeds": stdev([90, 91, 98])}
    )


def test_the_best_group_is_chosen_by_the_last_round_for_each_goal(run_row: RunRow) -> None:
    rows = [
        run_row("map", (80.0, 95.0), (79.0, 90.0), group="group 1"),
        run_row("map", (84.0, 91.0), (70.0, 94.0), group="group 2"),
        run_row("map", (82.0, 93.0), (83.0, 92.0), group="group 3"),
    ]
    assert best(rows, "map", MLP, "global") == pytest.approx(
        {"last": 84, "last_10": 70, "groups": 2}
    )
    assert best(rows, "map", MLP, "personal") == pytest.approx(
        {"last": 95, "last_10": 90, "groups": 2}
    )


def test_groups_are_compared_by_their_means_over_seeds(run_row: RunRow) -> None:
    rows = [
        run_row("map", (80.0, 0.0), group="group 1"),
        run_row("map", (90.0, 0.0), group="group 1", seed=1),
        run_row("map", (89.0, 0.0), group="group 2"),
        run_row("map", (83.0, 0.0), group="group 2", seed=1),
    ]
    found = best(rows, "map", MLP, "global")
    assert found is not None
    assert found["last"] == 86
    assert found["groups"] == pytest.approx(stdev([85, 86]))
    assert found["seeds"] == pytest.approx(stdev([89, 83]))


def test_numbers_of_other_methods_and_columns_do_not_count(run_row: RunRow) -> None:
    rows = [run_row("map", (80.0, 90.0)), run_row("map", (10.0, 10.0), column=LENET)]
    rows.append(run_row("fedavg", (20.0, 20.0)))
    assert best(rows, "map", MLP, "global") == {"last": 80, "last_10": 80}
    assert best(rows, "ditto", MLP, "global") is None


def test_a_cell_shows_our_number_the_papers_and_the_difference(run_row: RunRow) -> None:
    rows = [run_row("map", (88.64, 91.0), (86.2, 90.0)), run_row("fedavg", (84.0, 91.0))]
    assert cells(rows, "map", MLP, "global") == ["88.6", "86.2", "88.1", "+0.5"]
    assert cells(rows, "map", MLP, "personal") == ["91.0", "90.0", "92.1", "−1.1"]
    assert cells(rows, "fedavg", MLP, "global") == ["84.0", "84.0", "86.2", "−2.2"]


def test_a_cell_shows_both_spreads(run_row: RunRow) -> None:
    rows = [
        run_row("map", (value, 90.0), group=group, seed=seed)
        for group, values in {"group 1": (80.0, 84.0), "group 2": (70.0, 72.0)}.items()
        for seed, value in enumerate(values)
    ]
    assert cells(rows, "map", MLP, "global")[0] == "82.0 (± 7.8 over groups, 2.8 over seeds)"


def test_a_method_whose_runs_all_diverged_says_so(run_row: RunRow) -> None:
    rows = [run_row("feddyn", (None, None))]
    assert cells(rows, "feddyn", MLP, "global") == ["diverged", "-", "84.9", "-"]


def test_a_group_that_diverged_leaves_the_others(run_row: RunRow) -> None:
    rows = [run_row("feddyn", (None, None), group="group 1")]
    rows.append(run_row("feddyn", (84.0, 90.0), group="group 2"))
    assert cells(rows, "feddyn", MLP, "global") == ["84.0", "84.0", "84.9", "−0.9"]


def test_a_method_without_a_global_model_has_no_number_there(run_row: RunRow) -> None:
    rows = [run_row("fedrep", (None, 90.0), outcome="done")]
    assert cells(rows, "fedrep", MLP, "global") == ["-", "-", "-", "-"]
    assert cells(rows, "fedrep", MLP, "personal") == ["90.0", "90.0", "90.2", "−0.2"]


def test_the_table_has_methods_and_columns_in_the_papers_order(run_row: RunRow) -> None:
    rows = [run_row("map", (80.0, 90.0), column=LENET), run_row("fedavg", (70.0, 60.0))]
    table = goal_table(rows, "global")
    assert table.caption.endswith("accuracy in %")
    assert table.head == [
        "method",
        *(f"{MLP} last round", "last 10", "paper", "difference"),
        *(f"{LENET} last round", "last 10", "paper", "difference"),
    ]
    assert [line[0] for line in table.lines] == ["FedAvg", "MAP"]
    assert table.lines[1][1:] == ["-", "-", "88.1", "-", "80.0", "80.0", "88.4", "−8.4"]


def test_a_note_says_where_map_stands_by_the_last_ten_rounds(run_row: RunRow) -> None:
    rows = [
        run_row("fedavg", (99.0, 90.0), (80.0, 90.0)),
        run_row("ditto", (0.0, 80.0), (85.0, 80.0)),
        run_row("map", (0.0, 70.0), (81.5, 89.0)),
    ]
    assert notes(rows) == [
        f"{MLP}, global, mean of the last ten rounds: MAP is +1.5 points from FedAvg and number "
        "2 of 3; the first is ditto with 85.0.",
        f"{MLP}, personal, mean of the last ten rounds: MAP is −1.0 points from FedAvg and number "
        "2 of 3; the first is fedavg with 90.0.",
    ]
    assert notes(rows[:2]) == []
    assert len(notes([rows[0], rows[2]])) == 2


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((81.0, 91.0), Verdict.HOLDS),
        ((81.0, 89.0), Verdict.IN_PART),
        ((79.0, 91.0), Verdict.IN_PART),
        ((79.0, 89.0), Verdict.FAILS),
        ((80.0, 90.0), Verdict.FAILS),
    ],
)
def test_map_is_above_fedavg_by_the_last_ten_rounds(
    ours: tuple[float, float], verdict: Verdict, run_row: RunRow
) -> None:
    rows = [run_row("fedavg", (50.0, 50.0), (80.0, 90.0)), run_row("map", (0.0, 0.0), ours)]
    finding = ABOVE.judge(rows)
    assert finding.verdict is verdict
    assert finding.numbers == (
        f"{MLP} global {ours[0]:.1f} against 80.0; {MLP} personal {ours[1]:.1f} against 90.0"
    )


def test_map_is_above_fedavg_in_part_if_in_one_of_two_columns(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0), column=c) for c in (MLP, LENET)]
    rows += [run_row("map", (81.0, 91.0)), run_row("map", (79.0, 89.0), column=LENET)]
    assert ABOVE.judge(rows).verdict is Verdict.IN_PART


def test_a_column_without_one_of_maps_numbers_does_not_count(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0), column=c) for c in (MLP, LENET)]
    rows += [run_row("map", (81.0, 91.0)), run_row("map", (None, 89.0), column=LENET)]
    finding = ABOVE.judge(rows)
    assert finding.verdict is Verdict.HOLDS
    assert LENET not in finding.numbers


def singles(run_row: RunRow, goal: str, **scores: float) -> list[Row]:
    """All methods of the paper, at 50 where nothing else is given."""
    return [
        run_row(m, (scores.get(m, 50.0),) * 2 if m in METHODS_OF["global"] else (None, 50.0))
        for m in METHODS_OF[goal]
    ]


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ({"fedrs": 60.0, "scaffold": 61.0, "map": 70.0, "scamap": 70.0}, Verdict.HOLDS),
        ({"fedrs": 60.0, "scaffold": 55.0, "ditto": 56.0}, Verdict.IN_PART),
        ({"fedrs": 49.0, "scaffold": 61.0}, Verdict.FAILS),
        ({"fedrs": 50.0, "scaffold": 61.0}, Verdict.FAILS),
    ],
)
def test_the_best_single_methods_for_aggregation(
    scores: dict[str, float], verdict: Verdict, run_row: RunRow
) -> None:
    finding = SINGLES.judge(singles(run_row, "global", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, False)
    assert finding.numbers.startswith(f"{MLP}, of 17 single methods: ")


@pytest.mark.parametrize(
    ("scores", "verdict"),
    [
        ({"fedphp": 60.0, "map": 70.0}, Verdict.HOLDS),
        ({"fedphp": 60.0, "ditto": 61.0}, Verdict.IN_PART),
        ({"fedphp": 49.0}, Verdict.FAILS),
    ],
)
def test_the_best_single_method_for_personalization(
    scores: dict[str, float], verdict: Verdict, run_row: RunRow
) -> None:
    finding = HPM.judge(singles(run_row, "personal", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, False)
    assert finding.numbers.startswith(f"{MLP}, of 19 single methods: ")


def test_a_ranking_shows_five_and_holds_so_far_while_methods_are_missing(run_row: RunRow) -> None:
    scores = {
        "fedrs": 9.0,
        "scaffold": 8.0,
        "fedavg": 7.0,
        "ditto": 6.0,
        "moon": 5.0,
        "fedopt": 4.0,
    }
    rows = [run_row(m, (score, 0.0)) for m, score in scores.items()]
    finding = SINGLES.judge([*rows, run_row("map", (10.0, 0.0))])
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)
    ranking = "fedrs 9.0, scaffold 8.0, fedavg 7.0, ditto 6.0, moon 5.0"
    assert finding.numbers == f"{MLP}, of 6 single methods: {ranking}"


@pytest.mark.parametrize(
    ("scores", "verdict", "numbers"),
    [
        ({"map": 60.0, "scamap": 61.0}, Verdict.HOLDS, "none"),
        ({"map": 60.0, "ditto": 60.0}, Verdict.HOLDS, "none"),
        ({"map": 60.0, "ditto": 61.0}, Verdict.IN_PART, "ditto"),
        ({"map": 50.0, "ditto": 61.0}, Verdict.FAILS, "ditto"),
        ({"map": 49.0, "ditto": 61.0}, Verdict.FAILS, ""),
    ],
)
def test_nobody_is_above_map_in_both(
    scores: dict[str, float], verdict: Verdict, numbers: str, run_row: RunRow
) -> None:
    finding = NOBODY.judge(singles(run_row, "personal", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, False)
    assert finding.numbers.startswith(f"above MAP in both: {MLP}, of 21 methods: {numbers}")


@pytest.mark.parametrize(
    ("claim", "good", "fair", "bad"),
    [
        (
            SINGLES,
            {"fedrs": 60.0, "scaffold": 61.0},
            {"fedrs": 60.0, "ditto": 61.0},
            {"fedrs": 49.0},
        ),
        (NOBODY, {"map": 60.0}, {"map": 60.0, "ditto": 61.0}, {"map": 49.0, "ditto": 61.0}),
    ],
)
def test_the_worst_column_decides(
    claim: Claim,
    good: dict[str, float],
    fair: dict[str, float],
    bad: dict[str, float],
    run_row: RunRow,
) -> None:
    first = singles(run_row, "global", **good)
    for scores, verdict in ((good, "HOLDS"), (fair, "IN_PART"), (bad, "FAILS")):
        second = [r | {"column": LENET} for r in singles(run_row, "global", **scores)]
        assert claim.judge(first + second).verdict is Verdict[verdict]


def test_map_above_fedavg_in_one_accuracy_alone_is_not_above_it(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (50.0, 50.0)), run_row("map", (60.0, 49.0))]
    assert NOBODY.judge([*rows, run_row("ditto", (61.0, 61.0))]).verdict is Verdict.FAILS


def test_a_method_above_map_in_one_accuracy_alone_is_not_above_it(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (50.0, 50.0)), run_row("map", (60.0, 60.0))]
    rows += [run_row("fedrod", (61.0, 59.0)), run_row("ditto", (59.0, 61.0))]
    finding = NOBODY.judge(rows)
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)


@pytest.mark.parametrize("claim", TABLES.claims(), ids=lambda claim: claim.text)
def test_a_claim_without_its_methods_is_not_tested(claim: Claim, run_row: RunRow) -> None:
    for method in ("map", "fedavg", "fedrs"):
        finding = claim.judge([run_row(method, (50.0, 50.0))])
        assert finding.verdict is Verdict.NOT_TESTED


def test_a_report_has_both_tables_and_the_notes(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("map", (81.0, 91.0))]
    report = TABLES.report(rows)
    assert report.tables == {goal: goal_table(rows, goal) for goal in GOALS}
    assert report.notes == notes(rows)
