"""The numbers that a study takes from its runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmap.methods import parameters_of
from fedmap.paper import federated
from fedmap.paper.federated import (
    SMOKE,
    FederatedRun,
    by_seed,
    contenders,
    cut,
    difference,
    failures,
    gains_of,
    map_beside_fedavg,
    outcome,
    shown_name,
    values,
    without_diverged,
    words,
)
from fedmap.paper.finding import Estimate
from fedmap.paper.study import STUDIES, Choice, Row
from fedmap.simulate.settings import Settings

FinishedRun = Callable[..., Any]
OURS, PLAIN = ("map", "default"), ("fedavg", "default")
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"
# round by round; of the last ten the first is 0.5
ACCURACIES = [0.9, 0.5, *[0.1] * 8, 0.3]


def test_a_row_has_the_last_round_and_the_last_ten_rounds_in_per_cent(
    finished_run: FinishedRun,
) -> None:
    run = finished_run(ACCURACIES)
    study = STUDIES["table-1-2"]
    assert [study.where(run) | row for row in study.numbers(run, Path())] == [
        {
            "column": "fashion-mnist/mlp",
            "method": "map",
            "group": "group 2",
            "seed": 3,
            "rounds": 11,
            "clip": 9.0,
            "outcome": "done",
            "global": 30.0,
            "global_last_10": 16.0,
            "personal": 31.0,
            "personal_last_10": 17.0,
            "personal_all_clients": 77.78,
            "per_client": "90.00 50.00 " + "10.00 " * 8 + "30.00",
        }
    ]


def test_a_row_of_a_run_that_diverged_has_no_numbers(finished_run: FinishedRun) -> None:
    found = outcome(finished_run(ACCURACIES, diverged=True), Path())
    assert found["outcome"] == "diverged"
    numbers = [name for name, value in found.items() if value is None]
    assert len(numbers) == 6


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
    assert outcome(lost, tmp_path)["outcome"] == "diverged"


def test_the_small_scale_is_the_one_that_the_page_tells_of(reproduction: str) -> None:
    assert f"Smaller than the paper: {', '.join(words(cut('small')))}, " in reproduction


def run(
    method: str, steady: float, clients: str = "", seed: int = 0, column: str = MLP, rounds: int = 9
) -> Row:
    where = {"column": column, "method": method, "group": "default", "seed": seed}
    numbers = {"global_last_10": steady, "per_client": clients or None}
    return where | {"rounds": rounds, "outcome": "done"} | numbers


def test_only_three_seeds_are_trusted_or_one_of_a_run_that_takes_hours() -> None:
    usual = [run("fedavg", 1.0, seed=seed) for seed in range(4)]
    mine = [run("map", 1.0, seed=seed) for seed in range(3)]

    def trusted(rows: list[Row]) -> list[Row]:
        return federated.trusted([*usual, *rows])[len(usual) :]

    assert trusted(mine) == mine
    assert trusted(mine[:2]) == []
    assert trusted([*mine[:2], run("map", 1.0, seed=4)]) == []  # FedAvg has no such seed
    assert trusted([*mine[:2], mine[2] | {"outcome": "diverged"}]) == []
    assert trusted([*mine[:2], mine[2] | {"column": LENET}]) == []
    assert trusted([*mine[:2], mine[2] | {"method": "fedrs"}]) == []
    assert trusted([*mine[:2], mine[2] | {"group": "group 1"}]) == []
    long = run("map", 1.0, column="cifar-10/tfcnn", rounds=150)
    assert trusted([long]) == [long]
    assert trusted([long | {"rounds": 60}, long | {"column": MLP}]) == []


def gained(
    gains: dict[int, float], column: str = MLP, clients: tuple[float, ...] = (50.0,)
) -> list[Row]:
    """FedAvg and MAP by seed, MAP so much above in both accuracies."""
    return [
        run(method, 50.0 + more, " ".join(f"{own + more:.2f}" for own in clients), seed, column)
        for seed, gain in gains.items()
        for method, more in (("fedavg", 0.0), ("map", gain))
    ]


def test_global_models_are_compared_by_the_seeds_that_both_have() -> None:
    rows = [*gained({0: 2.0, 1: 10.0}), run("map", 99.0, seed=2), run("fedavg", 0.0, seed=3)]
    assert difference(rows, OURS, PLAIN, "global") == Estimate(6.0, 4.0, 2)
    assert difference(rows, PLAIN, OURS, "global") == Estimate(-6.0, 4.0, 2)
    assert difference(rows[-2:], OURS, PLAIN, "global") is None
    ours = [r for r in rows if r["method"] == "map"]
    assert difference(ours, OURS, PLAIN, "global") is None


@pytest.mark.parametrize("goal", ["global", "personal"])
def test_a_column_of_three_seeds_counts_as_much_as_one_of_a_single_seed(goal: str) -> None:
    rows = gained(dict.fromkeys(range(3), 1.0)) + gained({0: 10.0}, LENET)
    found = difference(rows, OURS, PLAIN, goal)
    assert found == Estimate(5.5, None, 3)  # not 3.25, the mean of the four runs
    assert str(found) == "+5.50"


def test_columns_of_many_and_of_few_clients_count_as_much() -> None:
    rows = gained({0: 1.0}, clients=(50.0,) * 9) + gained({0: 10.0}, LENET, clients=(50.0,) * 2)
    assert difference(rows, OURS, PLAIN, "personal") == Estimate(5.5, 0.0, 8 + 1 + 1)


def test_columns_of_different_seeds_do_not_mix() -> None:
    rows = gained({0: 1.0, 1: 3.0}) + gained({2: 10.0, 3: 14.0}, LENET)
    assert by_seed(rows, OURS, PLAIN, "global", MLP) == {0: [1.0], 1: [3.0]}
    assert by_seed(rows, OURS, PLAIN, "global", LENET) == {2: [10.0], 3: [14.0]}
    found = difference(rows, OURS, PLAIN, "global")
    assert found is not None
    # 2 ± 1 and 12 ± 2, and not the four gains together, which are 7 ± 3.03
    assert (found.mean, found.number) == (7.0, 3)
    assert found.error == pytest.approx(5**0.5 / 2)


def test_columns_with_the_same_seeds_are_joined_seed_by_seed() -> None:
    rows = gained({0: 1.0, 1: 3.0}) + gained({1: 14.0, 0: 10.0}, LENET)
    found = difference(rows, OURS, PLAIN, "global")
    assert found == Estimate.of([5.5, 8.5])  # the seeds' means


def test_columns_with_other_seeds_are_independent() -> None:
    rows = gained({0: 1.0, 1: 3.0}) + gained({0: 10.0, 2: 14.0}, LENET)
    found = difference(rows, OURS, PLAIN, "global")
    assert found is not None
    assert (found.mean, found.number) == (7.0, 3)  # of 2 ± 1 and 12 ± 2
    assert found.error == pytest.approx(5**0.5 / 2)
    apart = [run("map", 60.0), run("fedavg", 50.0, column=LENET)]
    assert difference(apart, OURS, PLAIN, "global") is None


def test_personal_models_are_compared_client_by_client() -> None:
    rows = [run("map", 0.0, "50.00 60.00"), run("map", 0.0, "70.00 80.00", seed=1)]
    rows += [run("fedavg", 0.0, "49.00 62.00"), run("fedavg", 0.0, "70.00 75.00", seed=1)]
    assert by_seed(rows, OURS, PLAIN, "personal", MLP) == {0: [1.0, -2.0], 1: [0.0, 5.0]}
    assert difference(rows, OURS, PLAIN, "personal") == Estimate.of([1.0, -2.0, 0.0, 5.0])
    # the squares from the mean of 1 are 0, 9, 1 and 16: (26 / 3 / 4) ** 0.5 is 1.47
    assert gains_of(rows, OURS) == "+0.00 ± 0.00 global and +1.00 ± 1.47 personal"
    without = [r | {"per_client": None} for r in rows]
    assert difference(without, OURS, PLAIN, "personal") is None
    assert gains_of(without, OURS) is None


def test_a_seed_where_one_run_has_no_number_is_left_out() -> None:
    rows = gained({0: 1.0, 1: 3.0, 2: 9.0})
    for lost in (rows[4], rows[5]):  # FedAvg's and MAP's with seed 2
        rest = [r for r in rows if r is not lost]
        rest.append(lost | {"global_last_10": None, "per_client": None, "outcome": "diverged"})
        for goal in ("global", "personal"):
            assert by_seed(rest, OURS, PLAIN, goal, MLP) == {0: [1.0], 1: [3.0]}


def test_a_single_clients_accuracy_and_a_row_without_any_are_read() -> None:
    assert values(run("map", 1.0) | {"per_client": 70.5}, "personal") == [70.5]
    assert values({"global_last_10": None}, "global") == []
    assert values({}, "personal") == []


def test_a_run_that_diverged_is_named() -> None:
    lost = run("map", 1.0) | {"outcome": "diverged", "group": "group 1"}
    assert failures([run("map", 1.0), lost]) == [
        f"MAP (group 1) on {MLP}, seed 0, diverged and is left out."
    ]


def test_a_run_is_called_by_its_method_group_column_and_seed() -> None:
    given: dict[str, Any] = {**SMOKE, "net": "mlp", "method": "map", "seed": 4}
    assert FederatedRun(Choice("smoke"), MLP, **given).label == f"map {MLP} #4"
    grouped = FederatedRun(Choice("smoke"), MLP, "alpha 0.1", **given)
    assert grouped.label == f"map (alpha 0.1) {MLP} #4"


def test_the_choices_clip_and_parameters_reach_the_runs_that_have_them() -> None:
    choice = Choice("smoke", clip=7.0, params={"alpha": 0.3, "mu": 2})
    given: dict[str, Any] = {**SMOKE, "net": "mlp"}
    plain = FederatedRun(choice, MLP, **given, method="fedavg")
    assert (plain.settings.params, plain.settings.clip, plain.group) == ({}, 7.0, "default")
    ours = FederatedRun(choice, MLP, **given, method="map", params={"alpha": 0.9, "weight": 0.1})
    assert (ours.settings.params["alpha"], ours.settings.params["weight"]) == (0.3, 0.1)
    assert ours.group == "alpha=0.3"
    grouped = FederatedRun(choice, MLP, "group 1", **given, method="map")
    assert grouped.group == "group 1, alpha=0.3"


def test_without_a_clip_a_run_has_the_name_that_it_had() -> None:
    given: dict[str, Any] = {**SMOKE, "net": "mlp", "method": "fedavg"}
    run = FederatedRun(Choice("smoke"), MLP, **given)
    assert run.settings.name == Settings.of(given).name
    assert FederatedRun(Choice("smoke", clip=5.0), MLP, **given).settings.name != run.settings.name


def test_a_variant_is_a_group_of_its_own_and_a_preset_is_a_parameter() -> None:
    tried = ["fedavg", "map[preset=own,alpha=0.5]"]
    assert list(contenders(tried, lambda method: {"default": {}})) == [
        ("default", {"method": "fedavg", "params": {}}),
        ("preset=own, alpha=0.5", {"method": "map", "params": {"preset": "own", "alpha": 0.5}}),
    ]
    assert "preset" in parameters_of("map")
    assert "preset" not in parameters_of("fedavg")


def test_a_variant_is_shown_with_what_is_different() -> None:
    assert shown_name("map") == "MAP"
    assert shown_name("map[alpha=0.5,own=true]") == "MAP (alpha=0.5, own=True)"
    assert shown_name("fedrs", "group 2") == "FedRS (group 2)"


def test_variants_of_map_stand_beside_fedavg_in_every_column_with_every_seed() -> None:
    choice = Choice("smoke", columns=(MLP, LENET), seeds=(0, 1))
    runs = map_beside_fedavg(choice, {"a": {"alpha": 0.1}, "b": {"alpha": 0.2}})
    found = [(r.column, r.settings.seed, r.settings.method, r.group) for r in runs]
    three = [("fedavg", "default"), ("map", "a"), ("map", "b")]
    assert found == [(c, s, *which) for c in (MLP, LENET) for s in (0, 1) for which in three]
    assert [run.settings.params.get("alpha") for run in runs[:3]] == [None, 0.1, 0.2]
