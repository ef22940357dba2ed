from collections.abc import Callable
from typing import Any

import pytest

from fedmap.paper import STUDIES
from fedmap.paper.study import GOALS, Row
from fedmap.paper.tables.table_1_2 import BEST, ORDER, cells, ditto_alone, goal_table, notes
from fedmap.paper.tables.verdicts_1_2 import METHODS_OF

RunRow = Callable[..., Row]
MLP, LENET, TFCNN = "fashion-mnist/mlp", "fashion-mnist/lenet", "cifar-10/tfcnn"
TABLES = STUDIES["table-1-2"]
DEFAULTS = [("default", None), ("default", 0.01)]  # FedAvg has no weight
MAP, FEDAVG = ("map", "default"), ("fedavg", "default")


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


def test_a_cell_shows_the_steadiest_number_the_difference_the_last_round_and_the_papers(
    run_row: RunRow,
) -> None:
    rows = [run_row("map", (88.64, 91.0), (86.2, 0.0)), run_row("fedavg", (84.0, 90.0))]
    assert cells(rows, MAP, MLP, "global") == ["86.2", "+2.20", "88.6", "88.1"]
    assert cells(rows, MAP, MLP, "personal") == ["91.0", "+1.00 ± 0.00", "91.0", "92.1"]
    assert cells(rows, FEDAVG, MLP, "global") == ["84.0", "-", "84.0", "86.2"]
    assert cells(rows[:1], MAP, MLP, "global") == ["86.2", "-", "88.6", "88.1"]


def test_a_cell_shows_the_spread_over_seeds(run_row: RunRow) -> None:
    rows = [run_row("map", (80.0, 90.0), (v, 0.0), seed=s) for s, v in enumerate((70.0, 74.0))]
    rows.append(run_row("map", (99.0, 99.0), group="group 1"))
    assert cells(rows, MAP, MLP, "global")[0] == "72.0 ± 2.8"


def test_a_level_of_fewer_seeds_than_fedavgs_names_them(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0 + s, 90.0), seed=s) for s in range(3)]
    rows += [run_row("ditto", (80.0 + s, 92.0), seed=s) for s in range(3)]
    rows += [run_row("moon", (82.0, 91.0))]
    rows += [run_row("map", (82.0 + s, 91.0), seed=s) for s in (0, 2)]
    rows += [run_row("map", (None, None), seed=1)]
    rows += [run_row("map", (80.0 + i, 91.0), group=f"group {i}", seed=1) for i in (1, 2, 3)]

    def levels(method: str, group: str = "default") -> list[str]:
        return [cells(rows, (method, group), MLP, goal)[0] for goal in GOALS]

    assert levels("fedavg") == ["81.0 ± 1.0", "90.0 ± 0.0"]
    assert levels("ditto") == ["81.0 ± 1.0", "92.0 ± 0.0"]
    assert levels("moon") == ["82.0 (seed 0)", "91.0 (seed 0)"]
    assert levels("map") == ["83.0 ± 1.4 (seed 0, 2)", "91.0 ± 0.0 (seed 0, 2)"]
    assert levels("map", BEST) == ["83.0 (seed 1)", "91.0 (seed 1)"]
    assert cells(rows, MAP, MLP, "global")[1] == "+2.00 ± 0.00"  # of the seeds that both have
    assert cells(rows[3:], MAP, MLP, "global")[0] == "83.0 ± 1.4"


def test_the_best_groups_line_names_it_and_only_it_and_the_default_have_the_papers_number(
    run_row: RunRow,
) -> None:
    rows = [run_row("map", (80.0, 90.0), group="group 1"), run_row("fedavg", (79.5, 90.0))]
    rows += [run_row("map", (82.0, 89.0), (81.0, 0.0), group="group 2")]
    rows += [run_row("map", (70.0, 80.0), group="group 3")]
    assert cells(rows, ("map", BEST), MLP, "global") == ["81.0", "+1.50", "82.0 (group 2)", "88.1"]
    assert cells(rows, ("map", "group 1"), MLP, "global") == ["80.0", "+0.50", "80.0", "-"]
    names = [line[0] for line in goal_table(rows, "global").lines]
    assert names == ["FedAvg", "MAP (best group)", *(f"MAP (group {i})" for i in (1, 2, 3))]
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
    rows = [run_row("map", (80.0, 90.0), column=LENET, seed=2)]
    rows += [run_row("fedavg", (70.0, 60.0), seed=seed) for seed in (0, 1)]
    table = goal_table(rows, "global")
    assert table.head == [
        "method",
        *(f"{MLP} last 10", "from FedAvg", "last round", "paper"),
        *(f"{LENET} last 10, seed 2", "from FedAvg", "last round", "paper"),
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
    rows += [run_row("map", (80.0, 90.0), group="group 3")]
    assert notes(rows) == [
        f"{MLP}, MAP from FedAvg with one setting for both goals: default +1.00 global and "
        "+1.00 ± 0.00 personal, group 1 +5.00 global and −2.00 ± 0.00 personal, group 2 +1.00 "
        "global and +1.00 ± 0.00 personal, group 3 +0.00 global and +0.00 ± 0.00 personal.",
        f"{MLP}, MAP from FedAvg with the best group for each goal, as the paper reports it: "
        "global +5.00 (group 1), personal +1.00 ± 0.00 (group 2).",
    ]
    assert len(notes(rows[:2])) == 1
    assert notes(rows[1:2]) == []


def test_a_note_has_the_personal_gain_of_each_seed(run_row: RunRow) -> None:
    gains = {0: 90.5, 2: 89.0, 1: 91.0}
    rows = [run_row("map", (80.0, own), seed=seed) for seed, own in gains.items()]
    rows += [run_row("fedavg", (80.0, 90.0), seed=seed) for seed in gains]

    def told(some: list[Row]) -> list[str]:
        return [note for note in notes(some) if "by seed" in note]

    # the squares from 1/6 are 13/6: (13 / 6 / 2 / 3) ** 0.5 is 0.601
    ours = "MAP +0.5, +1.0, −1.0 (mean +0.17 ± 0.60)"
    assert told(rows) == [f"{MLP}, personal gains by seed: {ours}."]
    # the second client gains 4 points with seed 0: the seeds' means are 2 and 5
    rows += [run_row("fedphp", (80.0, 92.0), seed=0, per_client="90.00 94.00")]
    assert told(rows) == [f"{MLP}, personal gains by seed: {ours}."]  # one seed has no spread
    rows += [run_row("fedphp", (80.0, 95.0), seed=2)]
    hpm = "FedPHP +2.0, +5.0 (mean +3.50 ± 1.50)"
    assert told(rows) == [f"{MLP}, personal gains by seed: {ours}; {hpm}."]
    without = [r for r in rows if r["method"] != "map"]
    assert told(without) == [f"{MLP}, personal gains by seed: {hpm}."]
    assert told([r for r in rows if r["seed"] == 0]) == []


def test_ditto_stands_beside_clients_alone_where_they_were_run(
    run_row: RunRow,
) -> None:
    alone = run_row("local", (None, 86.0), outcome="done", per_client="80.00 92.00")
    ours = [run_row("ditto", (80.0, 92.0), per_client="90.00 94.00")]
    ours += [run_row("ditto", (80.0, 92.0), seed=1, per_client="91.00 93.00")]
    others = [run_row("ditto", (80.0, 10.0), group="group 1")]
    others += [run_row("ditto", (80.0, 10.0), column=LENET), run_row("ditto", (None, None), seed=2)]
    # over the clients: (72 / 1 / 2) ** 0.5 is 6, and (10 / 3 / 4) ** 0.5 is 0.91
    assert ditto_alone([alone, *ours, *others]) == [
        f"{MLP}: clients that train alone have 86.0 ± 6.0, Ditto here has 92.0 ± 0.9 (all clients, "
        "± standard error over them); the paper prints 87.0 for Ditto, whose pull its code divides "
        "to nothing."
    ]
    assert ditto_alone([alone]) == ditto_alone(ours) == []


def test_columns_and_methods_without_the_three_groups_are_named(run_row: RunRow) -> None:
    rows = [run_row(m, (80.0, 90.0), column=c) for c in (MLP, LENET) for m in ("fedavg", "map")]
    missing = "the three groups of parameters on "
    assert TABLES.not_run(rows) == [f"{missing}{MLP}, {LENET}"]
    rows += [run_row("map", (80.0, 90.0), group=f"group {i}") for i in (1, 2)]
    rows.append(run_row("map", (80.0, 90.0), group="alpha=0.5"))
    assert TABLES.not_run(rows) == [f"{missing}{MLP}, {LENET}"]
    rows.append(run_row("map", (80.0, 90.0), group="group 3"))
    assert TABLES.not_run(rows) == [f"{missing}{MLP} (but for MAP)", f"{missing}{LENET}"]
    for method in ("fedrs", "map"):
        names = [f"group {i}" for i in (1, 2, 3)]
        rows += [run_row(method, (80.0, 90.0), group=name, column=LENET) for name in names]
    assert TABLES.not_run(rows)[1] == f"{missing}{LENET} (but for FedRS, MAP)"


def test_clients_alone_have_a_line_in_personalization_only(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("local", (None, 85.0))]
    lines = {goal: [line[0] for line in goal_table(rows, goal).lines] for goal in GOALS}
    assert lines == {"global": ["FedAvg"], "personal": ["FedAvg", "Local"]}


def test_a_report_has_both_tables_and_the_notes(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("map", (81.0, 91.0))]
    report = TABLES.report(rows)
    assert report.tables == {goal: goal_table(rows, goal) for goal in GOALS}
    assert report.notes == notes(rows)
    rows += [run_row("fedrs", (80.0, 90.0), group=f"group {i}") for i in (3, 1)]
    assert TABLES.report(rows).notes[-1] == "FedRS's group 1 has alpha=0.9; group 3 has alpha=0.1."
    assert ORDER[:23] == METHODS_OF["personal"]
