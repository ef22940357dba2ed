from collections.abc import Callable
from typing import Any

import pytest

from fedmap.paper import STUDIES
from fedmap.paper.finding import Estimate, Verdict
from fedmap.paper.study import GOALS, Claim, Row
from fedmap.paper.tables.table_1_2 import (
    BEST,
    METHODS_OF,
    ORDER,
    best_group,
    cells,
    ditto_alone,
    goal_table,
    notes,
)

RunRow = Callable[..., Row]
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"
TABLES = STUDIES["table-1-2"]
DEFAULTS = [("default", None), ("default", 0.01)]  # FedAvg has no weight
ABOVE, SINGLES, HPM, NOBODY = TABLES.claims()
MAP = ("map", "default")


def seeds(
    run_row: RunRow, method: str, steady: float | None, own: float, **where: Any
) -> list[Row]:
    """Three seeds: the global model's last ten rounds, and all clients."""
    numbers = {"outcome": "done"} | where
    return [run_row(method, (steady, own), seed=seed, **numbers) for seed in range(3)]


def params_of(scale: str, **more: object) -> list[tuple[str, object]]:
    choice = TABLES.choice(scale, columns=[MLP], methods=["fedavg", "map"], **more)
    runs: Any = TABLES.work(choice)
    return [(run.group, run.settings.params.get("weight")) for run in runs]


def test_at_the_papers_scale_a_method_has_its_default_and_three_groups() -> None:
    groups = [("group 1", 0.1), ("group 2", 0.01), ("group 3", 0.01)]
    assert params_of("paper") == [*DEFAULTS, *groups]


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


def test_the_best_group_is_chosen_by_the_last_round_for_each_goal(run_row: RunRow) -> None:
    rows = [
        run_row("map", (80.0, 95.0), (79.0, 90.0), group="group 1"),
        run_row("map", (84.0, 91.0), (70.0, 94.0), group="group 2"),
        run_row("map", (99.0, 99.0), group="default"),
        run_row("map", (99.0, 99.0), group="group 1", column=LENET),
        run_row("fedrs", (99.0, 99.0), group="group 1"),
    ]
    assert best_group(rows, "map", MLP, "global") == "group 2"
    assert best_group(rows, "map", MLP, "personal") == "group 1"
    assert best_group(rows, "ditto", MLP, "global") is None


def test_groups_are_compared_by_their_means_over_seeds(run_row: RunRow) -> None:
    rows = [
        run_row("map", (80.0, 0.0), group="group 1"),
        run_row("map", (90.0, 0.0), group="group 1", seed=1),
        run_row("map", (89.0, 0.0), group="group 2"),
        run_row("map", (83.0, 0.0), group="group 2", seed=1),
    ]
    assert best_group(rows, "map", MLP, "global") == "group 2"


def test_a_cell_shows_the_steadiest_number_the_difference_the_last_round_and_the_papers(
    run_row: RunRow,
) -> None:
    rows = [run_row("map", (88.64, 91.0), (86.2, 0.0)), run_row("fedavg", (84.0, 90.0))]
    assert cells(rows, MAP, MLP, "global") == ["86.2", "+2.2", "88.6", "88.1"]
    assert cells(rows, MAP, MLP, "personal") == ["91.0", "+1.0 ± 0.0", "91.0", "92.1"]
    assert cells(rows, ("fedavg", "default"), MLP, "global") == ["84.0", "-", "84.0", "86.2"]
    assert cells(rows[:1], MAP, MLP, "global") == ["86.2", "-", "88.6", "88.1"]


def test_a_cell_shows_the_spread_over_seeds(run_row: RunRow) -> None:
    rows = [run_row("map", (80.0, 90.0), (v, 0.0), seed=s) for s, v in enumerate((70.0, 74.0))]
    rows.append(run_row("map", (99.0, 99.0), group="group 1"))
    assert cells(rows, MAP, MLP, "global")[0] == "72.0 ± 2.8"


def test_the_best_groups_line_names_it_and_only_it_and_the_default_have_the_papers_number(
    run_row: RunRow,
) -> None:
    rows = [run_row("map", (80.0, 90.0), group="group 1"), run_row("fedavg", (79.5, 90.0))]
    rows += [run_row("map", (82.0, 89.0), (81.0, 0.0), group="group 2")]
    assert cells(rows, ("map", BEST), MLP, "global") == ["81.0", "+1.5", "82.0 (group 2)", "88.1"]
    assert cells(rows, ("map", "group 1"), MLP, "global") == ["80.0", "+0.5", "80.0", "-"]
    names = [line[0] for line in goal_table(rows, "global").lines]
    assert names == ["FedAvg", "MAP (best group)", "MAP (group 1)", "MAP (group 2)"]
    assert cells(rows, ("map", BEST), LENET, "global") == ["-", "-", "-", "88.4"]


def test_a_method_whose_runs_all_diverged_says_so(run_row: RunRow) -> None:
    rows = [run_row("feddyn", (None, None))]
    assert cells(rows, ("feddyn", "default"), MLP, "global") == ["diverged", "-", "-", "84.9"]
    assert TABLES.report(rows).notes == [f"FedDyn on {MLP}, seed 0, diverged and is left out."]


def test_a_method_without_a_global_model_has_no_number_there(run_row: RunRow) -> None:
    rows = [run_row("fedrep", (None, 90.0), outcome="done")]
    assert cells(rows, ("fedrep", "default"), MLP, "global") == ["-", "-", "-", "-"]
    assert cells(rows, ("fedrep", "default"), MLP, "personal") == ["90.0", "-", "90.0", "90.2"]


def test_the_table_has_methods_and_columns_in_the_papers_order(run_row: RunRow) -> None:
    rows = [run_row("map", (80.0, 90.0), column=LENET), run_row("fedavg", (70.0, 60.0))]
    table = goal_table(rows, "global")
    assert table.head == [
        "method",
        *(f"{MLP} last 10", "from FedAvg", "last round", "paper"),
        *(f"{LENET} last 10", "from FedAvg", "last round", "paper"),
    ]
    assert goal_table(rows, "personal").head[1] == f"{MLP} all clients"
    assert [line[0] for line in table.lines] == ["FedAvg", "MAP"]
    assert table.lines[1][1:] == ["-", "-", "-", "88.1", "80.0", "-", "80.0", "88.4"]


def test_a_note_has_each_setting_in_both_goals_and_the_best_group_for_each(
    run_row: RunRow,
) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("map", (81.0, 91.0))]
    rows += [run_row("map", (85.0, 88.0), group="group 1")]
    rows += [run_row("map", (81.0, 91.0), group="group 2")]
    assert notes(rows) == [
        f"{MLP}, MAP from FedAvg with one setting for both goals: default +1.0 global and +1.0 ± "
        "0.0 personal, group 1 +5.0 global and −2.0 ± 0.0 personal, group 2 +1.0 global and +1.0 ± "
        "0.0 personal.",
        f"{MLP}, MAP from FedAvg with the best group for each goal, as the paper reports it: "
        "global +5.0 (group 1), personal +1.0 ± 0.0 (group 2).",
    ]
    assert len(notes(rows[:2])) == 1
    assert notes(rows[1:2]) == []


def test_a_note_has_the_personal_gain_of_each_seed(run_row: RunRow) -> None:
    gains = {0: 90.5, 2: 89.0, 1: 91.0}
    rows = [run_row("map", (80.0, own), seed=seed) for seed, own in gains.items()]
    rows += [run_row("fedavg", (80.0, 90.0), seed=seed) for seed in gains]
    told = [note for note in notes(rows) if "by seed" in note]
    assert len(told) == 1
    assert told[0].endswith("by seed: +0.5 (seed 0), +1.0 (seed 1), −1.0 (seed 2).")
    assert not any("by seed" in note for note in notes(rows[::3]))


def test_ditto_stands_beside_clients_alone_where_they_were_run(
    run_row: RunRow,
) -> None:
    rows = [run_row("ditto", (80.0, 92.0)), run_row("local", (None, 86.0), outcome="done")]
    assert ditto_alone(rows) == [
        f"{MLP}: clients that train alone have 86.0, Ditto here has 92.0; the paper prints 87.0 "
        "for Ditto, whose pull its code divides to nothing."
    ]
    assert ditto_alone(rows[:1]) == ditto_alone(rows[1:]) == []


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
def test_map_is_above_fedavg_with_three_seeds(
    ours: tuple[float, float], verdict: Verdict, run_row: RunRow
) -> None:
    rows = seeds(run_row, "fedavg", 80.0, 90.0) + seeds(run_row, "map", *ours)
    rows += seeds(run_row, "map", 99.0, 99.0, group="group 1")  # the default decides
    finding = ABOVE.judge(rows)
    assert finding.verdict is verdict
    gains = [Estimate(a - b, 0.0) for a, b in zip(ours, (80.0, 90.0), strict=True)]
    assert finding.numbers == f"{MLP} {gains[0]} global and {gains[1]} personal"
    assert finding.short == f"{gains[0]} global and {gains[1]} personal, 1 of 8 columns"
    assert finding.so_far
    assert ABOVE.judge([r for r in rows if r["seed"] < 2]).verdict is Verdict.NOT_TESTED


@pytest.mark.parametrize(("gain", "verdict"), [(2.4, Verdict.IN_PART), (2.6, Verdict.HOLDS)])
def test_a_gain_that_three_seeds_may_give_by_chance_is_none(
    gain: float, verdict: Verdict, run_row: RunRow
) -> None:
    rows = seeds(run_row, "fedavg", 80.0, 90.0)
    rows += [run_row("map", (79.0 + gain + s, 91.0), seed=s) for s in range(3)]
    assert ABOVE.judge(rows).verdict is verdict  # 4.3 standard errors of 0.577 are 2.48


def test_map_is_above_fedavg_in_part_if_in_one_of_two_columns(run_row: RunRow) -> None:
    rows = [r for c in (MLP, LENET) for r in seeds(run_row, "fedavg", 80.0, 90.0, column=c)]
    rows += seeds(run_row, "map", 81.0, 91.0) + seeds(run_row, "map", 79.0, 89.0, column=LENET)
    finding = ABOVE.judge(rows)
    assert finding.verdict is Verdict.IN_PART
    clients = Estimate.of([1.0] * 6 + [-1.0] * 6)
    assert finding.short == f"+0.0 ± 0.0 global and {clients} personal, 2 of 8 columns"


def test_a_column_without_one_of_maps_numbers_does_not_count(run_row: RunRow) -> None:
    rows = [r for c in (MLP, LENET) for r in seeds(run_row, "fedavg", 80.0, 90.0, column=c)]
    rows += seeds(run_row, "map", 81.0, 91.0) + seeds(run_row, "map", None, 89.0, column=LENET)
    finding = ABOVE.judge(rows)
    assert finding.verdict is Verdict.HOLDS
    assert LENET not in finding.numbers


def singles(run_row: RunRow, goal: str, **scores: float) -> list[Row]:
    """All methods of the paper, at 50 where nothing else is given."""
    both = METHODS_OF["global"]
    return [
        r
        for m in METHODS_OF[goal]
        for r in seeds(run_row, m, scores.get(m, 50.0) if m in both else None, scores.get(m, 50.0))
    ]


@pytest.mark.parametrize(
    ("scores", "verdict", "above"),
    [
        ({"fedrs": 60.0, "scaffold": 61.0, "map": 70.0, "scamap": 70.0}, Verdict.HOLDS, "none"),
        ({"fedrs": 60.0, "scaffold": 55.0, "ditto": 55.0}, Verdict.HOLDS, "none"),
        ({"fedrs": 60.0, "scaffold": 55.0, "ditto": 56.0}, Verdict.IN_PART, "Ditto"),
        ({"fedrs": 49.0, "scaffold": 61.0}, Verdict.IN_PART, "FedAvg"),
        ({"fedrs": 50.0, "scaffold": 50.0}, Verdict.FAILS, "none"),
    ],
)
def test_the_best_single_methods_for_aggregation(
    scores: dict[str, float], verdict: Verdict, above: str, run_row: RunRow
) -> None:
    finding = SINGLES.judge(singles(run_row, "global", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, True)  # one column alone
    gains = [Estimate(scores[m] - 50, 0.0) for m in ("fedrs", "scaffold")]
    begin = f"{MLP}: FedRS {gains[0]}, Scaffold {gains[1]} from FedAvg, above them of 17: {above}"
    assert finding.numbers.startswith(begin)
    assert finding.short == f"FedRS {gains[0]} from FedAvg, 1 of 8 columns"


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
    assert (finding.verdict, finding.so_far) == (verdict, True)  # one column alone
    assert "of 19: " in finding.numbers


def test_a_ranking_holds_so_far_while_methods_are_missing(run_row: RunRow) -> None:
    rows = [r for m, v in {"fedavg": 7.0, "fedphp": 9.0}.items() for r in seeds(run_row, m, v, v)]
    finding = HPM.judge([*rows, run_row("ditto", (99.0, 99.0))])  # one seed does not count
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)
    assert finding.numbers.endswith("above them of 2: none")


@pytest.mark.parametrize(
    ("scores", "verdict", "numbers"),
    [
        ({"map": 60.0, "scamap": 61.0}, Verdict.HOLDS, "none"),
        ({"map": 60.0, "ditto": 60.0}, Verdict.HOLDS, "none"),
        ({"map": 60.0, "ditto": 61.0}, Verdict.IN_PART, "Ditto"),
        ({"map": 50.0, "ditto": 61.0}, Verdict.FAILS, "Ditto"),
        ({"map": 49.0, "ditto": 61.0}, Verdict.FAILS, ""),
    ],
)
def test_nobody_is_above_map_in_both(
    scores: dict[str, float], verdict: Verdict, numbers: str, run_row: RunRow
) -> None:
    finding = NOBODY.judge(singles(run_row, "personal", **scores))
    assert (finding.verdict, finding.so_far) == (verdict, True)  # one column alone
    assert finding.short.endswith(" of 21 methods, 1 of 8 columns")
    if numbers:
        assert finding.numbers == f"above MAP in both: {MLP}, of 21 methods: {numbers}"
        assert finding.short.startswith("none" if numbers == "none" else "1")


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


@pytest.mark.parametrize("claim", TABLES.claims(), ids=lambda claim: claim.text)
def test_with_every_method_in_every_column_there_is_no_reservation(
    claim: Claim, run_row: RunRow
) -> None:
    good = {"map": 60.0, "fedrs": 60.0, "scaffold": 60.0, "fedphp": 60.0}
    rows = [r | {"column": c} for c in TABLES.columns for r in singles(run_row, "personal", **good)]
    finding = claim.judge(rows)
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, False)


def test_map_above_fedavg_in_one_accuracy_alone_is_not_above_it(run_row: RunRow) -> None:
    rows = seeds(run_row, "fedavg", 50.0, 50.0) + seeds(run_row, "map", 60.0, 49.0)
    finding = NOBODY.judge(rows + seeds(run_row, "ditto", 61.0, 61.0))
    assert finding.verdict is Verdict.FAILS


def test_a_method_above_map_in_one_accuracy_alone_is_not_above_it(run_row: RunRow) -> None:
    rows = seeds(run_row, "fedavg", 50.0, 50.0) + seeds(run_row, "map", 60.0, 60.0)
    rows += seeds(run_row, "fedrod", 61.0, 59.0) + seeds(run_row, "ditto", 59.0, 61.0)
    finding = NOBODY.judge(rows)
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)


@pytest.mark.parametrize("claim", TABLES.claims(), ids=lambda claim: claim.text)
def test_a_claim_without_its_methods_is_not_tested(claim: Claim, run_row: RunRow) -> None:
    for method in ("map", "fedavg", "fedrs"):
        finding = claim.judge(seeds(run_row, method, 50.0, 50.0))
        assert finding.verdict is Verdict.NOT_TESTED
        assert finding.numbers.startswith("no column has ")


def test_a_report_has_both_tables_and_the_notes(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("map", (81.0, 91.0))]
    report = TABLES.report(rows)
    assert report.tables == {goal: goal_table(rows, goal) for goal in GOALS}
    assert report.notes == notes(rows)
    assert ORDER[:23] == METHODS_OF["personal"]
