"""The best of three groups of parameters, of rows that are written by hand."""

from collections.abc import Callable

from fedmap.paper.study import Row
from fedmap.paper.tables.best_group import best_group
from fedmap.paper.tables.table_1_2 import goal_table

RunRow = Callable[..., Row]
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"


def test_the_best_group_is_chosen_by_the_last_round_for_each_goal(run_row: RunRow) -> None:
    rows = [
        run_row("map", (80.0, 95.0), (79.0, 90.0), group="group 1"),
        run_row("map", (84.0, 91.0), (70.0, 94.0), group="group 2"),
        run_row("map", (60.0, 60.0), group="group 3"),
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
        run_row("map", (70.0, 0.0), group="group 3"),
        run_row("map", (80.0, 0.0), group="group 3", seed=1),
    ]
    assert best_group(rows, "map", MLP, "global") == "group 2"


def test_before_all_groups_were_run_with_the_same_seeds_none_is_best(run_row: RunRow) -> None:
    two = [f"group {i}" for i in (1, 2)]
    rows = [run_row("map", (80.0, 90.0), group=name, seed=s) for s in (0, 1) for name in two]
    rows.append(run_row("map", (70.0, 90.0), group="group 3"))

    def names() -> list[str]:
        return [line[0] for line in goal_table(rows, "global").lines]

    assert best_group(rows, "map", MLP, "global") is None
    assert names() == ["MAP (group 1)", "MAP (group 2)", "MAP (group 3)"]
    rows.append(run_row("map", (99.0, 90.0), group="group 3", seed=1))
    assert best_group(rows, "map", MLP, "global") == "group 3"
    assert names()[0] == "MAP (best group)"


def test_a_group_that_diverged_with_a_seed_is_not_the_best(run_row: RunRow) -> None:
    rows = [run_row("map", (80.0 + s, 90.0), group=f"group {s}") for s in (1, 2)]
    rows.append(run_row("map", (None, None), group="group 3"))
    assert best_group(rows, "map", MLP, "global") == "group 2"
    rows += [run_row("map", (99.0, 90.0), group=f"group {i}", seed=1) for i in (1, 3)]
    rows.append(run_row("map", (None, None), group="group 2", seed=1))
    assert best_group(rows, "map", MLP, "global") == "group 1"
