"""The study of federations: what differs from the usual one, and what the tables and notes say."""

from statistics import mean, stdev
from typing import Any

import pytest
from matplotlib.figure import Figure

from fedmap.paper import STUDIES
from fedmap.paper.study import Row

STUDY: Any = STUDIES["federations"]
# by method and group: the global accuracy and those of two clients, for each of two seeds
FOUND: dict[tuple[str, str], list[tuple[float | None, list[float]]]] = {
    ("local", "default"): [(None, [80.0, 70.0]), (None, [60.0, 90.0])],
    ("fedavg", "default"): [(50.0, [85.0, 65.0]), (60.0, [70.0, 80.0])],
    ("map", "preset=own"): [(70.0, [90.0, 75.0]), (72.0, [70.0, 91.0])],
}


def numbers(column: str, who: tuple[str, str], seed: int, more: float = 0) -> Row:
    whole, own = FOUND[who][seed]
    return {
        "column": column,
        "method": who[0],
        "group": who[1],
        "seed": seed,
        "rounds": 20,
        "clip": 100.0,
        "outcome": "done",
        "global_last_10": None if whole is None else whole + more,
        "per_client": " ".join(f"{accuracy:.2f}" for accuracy in own),
    }


@pytest.fixture
def rows() -> list[Row]:
    """Two federations with two seeds; in the second one all global models are 2 points better."""
    return [
        numbers(column, who, seed, more)
        for seed in (0, 1)
        for column, more in (("as usual", 0.0), ("5 clients", 2.0))
        for who in FOUND
    ]


def test_every_federation_differs_from_the_usual_one_in_one_thing() -> None:
    runs = STUDY.work(STUDY.choice("small", methods=["map"]))
    settings = {run.column: run.settings for run in runs}
    usual = settings.pop("as usual")
    assert (usual.data, usual.net, usual.clients, usual.rounds) == ("fashion-mini", "lenet", 20, 20)
    assert (usual.fraction, usual.clip, usual.partition) == (0.2, 100.0, None)
    changed = {
        column: {name for name in ("clients", "fraction", "partition", "partition_params")
                 if getattr(one, name) != getattr(usual, name)}
        for column, one in settings.items()
    }  # fmt: skip
    assert changed == {
        "2 classes each": {"partition", "partition_params"},
        "5 classes each": {"partition", "partition_params"},
        "Dirichlet 0.5": {"partition"},
        "half in a round": {"fraction"},
        "5 clients": {"clients", "fraction"},  # two of five: none is a fifth of them
        "100 clients": {"clients"},
    }


def test_all_methods_meet_in_every_federation_with_every_seed() -> None:
    runs = STUDY.work(STUDY.choice("small", seeds=[0, 1, 2]))
    assert len(runs) == 7 * 8 * 3
    assert len({run.name for run in runs}) == len(runs)
    assert {run.group for run in runs} == {"default", "loss=etf", "preset=own"}


def test_the_table_has_both_accuracies_with_their_spread(rows: list[Row]) -> None:
    shown = STUDY.report(rows).tables["accuracies"]
    assert shown.head == ["method", "as usual", "5 clients"]
    whole = [70.0, 72.0]
    own = [mean([90.0, 75.0]), mean([70.0, 91.0])]
    cell = f"{mean(whole):.1f} ± {stdev(whole):.1f} / {mean(own):.1f} ± {stdev(own):.1f}"
    assert shown.lines[2][:2] == ["MAP (preset=own)", cell]
    assert shown.lines[0][1] == "- / 75.0 ± 0.0"
    assert shown.lines[1][2].startswith("57.0 ± 7.1 / ")


def test_losers_are_counted_client_by_client_beside_training_alone(rows: list[Row]) -> None:
    shown = STUDY.report(rows).tables["losers"]
    assert shown.lines == [["FedAvg", "2 of 4", "2 of 4"], ["MAP (preset=own)", "0 of 4", "0 of 4"]]


def test_without_training_alone_nobody_is_said_to_lose(rows: list[Row]) -> None:
    shown = STUDY.report([r for r in rows if r["method"] != "local"]).tables["losers"]
    assert shown.lines == [["FedAvg", "-", "-"], ["MAP (preset=own)", "-", "-"]]


def test_the_notes_name_the_first_of_each_goal_and_its_gain(rows: list[Row]) -> None:
    # global: 20 and 12 points above FedAvg; personal: 5, 10, 0 and 11
    notes = STUDY.report(rows).notes
    assert notes[0] == (
        "as usual: first are global MAP (preset=own) with 71.0 % (+16.00 ± 4.00 to FedAvg), "
        "personal MAP (preset=own) with 81.5 % (+6.50 ± 2.53 to FedAvg)."
    )


def test_a_run_that_diverged_is_named_and_left_out(rows: list[Row]) -> None:
    lost = rows[-1] | {"outcome": "diverged", "global_last_10": None, "per_client": None}
    report = STUDY.report([*rows[:-1], lost])
    assert "MAP (preset=own) on 5 clients, seed 1, diverged and is left out." in report.notes
    assert report.tables["accuracies"].lines[2][2] == "72.0 / 82.5"
    assert report.tables["losers"].lines[1][2] == "0 of 2"


def test_the_figure_has_a_point_for_each_method_but_fedavg(rows: list[Row]) -> None:
    drawn: Figure = STUDY.report(rows).figures["gains"]
    left, right = drawn.axes
    points: Any = right.containers
    assert [text.get_text() for text in left.get_yticklabels()] == ["as usual", "5 clients"]
    shown = {c.get_label(): c.lines[0].get_xdata() for c in points}
    assert {name: list(map(float, x)) for name, x in shown.items()} == {
        "Local": [0.0, 0.0],
        "MAP (preset=own)": [6.5, 6.5],
    }
