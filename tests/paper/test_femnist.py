from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmap.paper import STUDIES
from fedmap.paper.figures.femnist import curve, findings
from fedmap.paper.finding import Verdict
from fedmap.paper.report import size_in_words
from fedmap.paper.study import Choice, Row

FEMNIST = STUDIES["femnist"]
FIRST, SECOND = FEMNIST.columns[:2]
(EVERYWHERE,) = FEMNIST.claims()
NOTHING: Row = {"round": None, "global": None, "personal": None, "per_client": None}


def rounds(
    method: str, accuracies: list[float], column: str = FIRST, seed: int = 0, above: float = 20.0
) -> list[Row]:
    """Global accuracies by round; the personal ones are so much above."""
    where = {"column": column, "method": method, "seed": seed}
    return [
        where | {"round": t, "global": accuracy, "personal": accuracy + above}
        for t, accuracy in enumerate(accuracies, 1)
    ]


def test_work_is_the_chosen_fraction_and_epochs() -> None:
    choice = FEMNIST.choice("paper", columns=["Q=0.3, E=5"], methods=["map"])
    runs: Any = FEMNIST.work(choice)
    (run,) = runs
    assert (run.settings.fraction, run.settings.epochs) == (0.3, 5)


def test_the_columns_are_the_papers_fractions_and_epochs() -> None:
    assert FEMNIST.columns == [f"Q={q}, E={e}" for q in ("0.1", "0.3") for e in (2, 5, 10)]


def test_the_page_says_what_the_small_scale_cuts(reproduction: str) -> None:
    assert size_in_words(FEMNIST.cuts("small")) in reproduction
    assert FEMNIST.cuts("paper") == []


def test_the_numbers_are_both_accuracies_of_each_round_and_none_of_a_run_that_diverged(
    finished_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        finished_run([0.25, 0.5], group="default"),
        finished_run([0.5], group="alpha=0.5"),
        finished_run([0.5], diverged=True),
        finished_run([0.5], done=False),
    ]
    monkeypatch.setattr(type(FEMNIST), "work", lambda study, choice: runs)
    where: Row = {"column": "fashion-mnist/mlp", "method": "map", "seed": 3, "clip": 9.0}
    first = {"round": 1, "global": 25.0, "personal": 26.0, "per_client": None}
    last = {"round": 2, "global": 50.0, "personal": 51.0, "per_client": "25.00 50.00"}
    only = {"round": 1, "global": 50.0, "personal": 51.0, "per_client": "50.00"}
    assert FEMNIST.collect(Choice("paper"), Path()) == [
        where | first,
        where | last,
        where | {"method": "map[alpha=0.5]"} | only,
        where | {"method": "map[group 2]"} | NOTHING,
    ]


def test_a_run_that_diverged_is_named_and_left_out() -> None:
    ended = rounds("fedavg", [50.0, 52.0]) + rounds("map", [51.0, 53.0])
    lost = [
        {"column": FIRST, "method": "map[alpha=0.5]", "seed": 1} | NOTHING,
        {"column": SECOND, "method": "scaffold", "seed": 2} | NOTHING,
    ]
    report, plain = FEMNIST.report([lost[0], *ended, lost[1]]), FEMNIST.report(ended)
    assert report.notes == [
        f"MAP (alpha=0.5) with {FIRST}, seed 1, diverged and is left out.",
        f"Scaffold with {SECOND}, seed 2, diverged and is left out.",
    ]
    assert plain.notes == []
    assert report.tables == plain.tables
    drawn = [len(axes.lines) for axes in report.figures["curves"].axes]
    assert drawn == [2, 2]


def test_a_curve_is_the_mean_over_seeds_by_round() -> None:
    rows = rounds("map", [10.0, 20.0]) + rounds("map", [30.0, 50.0], seed=1)
    rows += rounds("fedavg", [0.0, 0.0]) + rounds("map", [0.0, 0.0], SECOND)
    assert curve(rows, FIRST, "map", "global").tolist() == [20, 35]
    assert curve(rows, FIRST, "map", "personal").tolist() == [40, 55]
    assert len(curve(rows, SECOND, "fedavg", "global")) == 0


def test_the_table_has_the_last_round_and_the_mean_of_the_last_ten() -> None:
    accuracies = [100.0, 50.0, *[10.0] * 8, 30.0]  # of the last ten, the first is 50
    table = FEMNIST.report(rounds("map", accuracies)).tables["femnist"]
    assert table.lines == [[FIRST, "MAP", "30.0", "16.0", "50.0", "36.0"]]
    assert table.caption == "FEMNIST, accuracy in %"
    two = ("last round", "last 10")
    heads = [f"{goal}, {two[0]}" for goal in ("global", "personal")]
    assert table.head == ["column", "method", heads[0], two[1], heads[1], two[1]]


def test_the_table_shows_what_is_there() -> None:
    rows = rounds("fedavg", [1.0]) + rounds("map", [2.0]) + rounds("fedavg", [3.0], SECOND)
    lines = FEMNIST.report(rows).tables["femnist"].lines
    assert [line[:3] for line in lines] == [
        [FIRST, "FedAvg", "1.0"],
        [FIRST, "MAP", "2.0"],
        [SECOND, "FedAvg", "3.0"],
    ]


def test_the_curves_are_drawn_smoothed_over_three_rounds() -> None:
    rows = rounds("fedavg", [3.0, 5.0, 7.0, 15.0]) + rounds("map", [1.0, 1.0, 4.0, 4.0])
    above, below = FEMNIST.report(rows).figures["curves"].axes
    drawn = {line.get_label(): np.array(line.get_xydata()).tolist() for line in above.lines}
    assert drawn == {
        "FedAvg": [[1, 3], [2, 4], [3, 5], [4, 9]],
        "MAP": [[1, 1], [2, 1], [3, 2], [4, 3]],
    }
    assert np.array(below.lines[0].get_ydata()).tolist() == [23, 24, 25, 29]
    assert (above.get_ylabel(), below.get_ylabel()) == (
        "global accuracy, %",
        "personal accuracy, %",
    )


def test_every_column_has_its_place_in_the_figure() -> None:
    rows = [r for i, c in enumerate(FEMNIST.columns) for r in rounds("map", [float(i)], c)]
    figure = FEMNIST.report(rows).figures["curves"]
    drawn = [float(np.array(axes.lines[0].get_ydata())[0]) for axes in figure.axes]
    assert drawn == [0, 1, 2, 20, 21, 22, 3, 4, 5, 23, 24, 25]
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]
    assert titles == list(FEMNIST.columns)
    assert [axes.get_xlabel() for axes in figure.axes] == [""] * 9 + ["round (mean of 3)"] * 3


@pytest.mark.parametrize(("columns", "shape"), [(1, (2, 1)), (3, (2, 3)), (4, (4, 3))])
def test_the_figure_is_no_larger_than_its_columns(columns: int, shape: tuple[int, int]) -> None:
    rows = [r for column in FEMNIST.columns[:columns] for r in rounds("map", [1.0], column)]
    axes = FEMNIST.report(rows).figures["curves"].axes
    place = axes[0].get_subplotspec()
    assert len(axes) == 2 * columns
    assert place is not None
    assert place.get_gridspec().get_geometry() == shape


def test_all_curves_have_the_same_rounds_below_them() -> None:
    rows = rounds("map", [1.0]) + rounds("map", [1.0] * 9, SECOND)
    first, second, *_ = FEMNIST.report(rows).figures["curves"].axes
    assert first.get_xlim() == second.get_xlim()


def runs(
    method: str, steady: float, own: float, column: str = FIRST, clients: int = 100
) -> list[Row]:
    """Three seeds, one round each."""
    rows = [r for seed in range(3) for r in rounds(method, [steady], column, seed)]
    return [r | {"per_client": " ".join([f"{own:.2f}"] * clients)} for r in rows]


@pytest.mark.parametrize(
    ("first", "second", "whole", "each", "gains"),
    [
        ((51.0, 71.0), (51.0, 71.0), Verdict.HOLDS, (2, 2), ("+1.00", "+11.00")),
        ((51.0, 71.0), (51.0, 69.0), Verdict.IN_PART, (2, 1), ("+1.00", "+11.00")),
        ((51.0, 69.0), (49.0, 69.0), Verdict.IN_PART, (1, 0), ("+1.00", "+11.00")),
        ((50.0, 70.0), (49.0, 69.0), Verdict.FAILS, (0, 0), ("+0.00", "+10.00")),
    ],
)
def test_map_is_better_in_every_setting(
    first: tuple[float, float],
    second: tuple[float, float],
    whole: Verdict,
    each: tuple[int, int],
    gains: tuple[str, str],
) -> None:
    rows = runs("fedavg", 50.0, 70.0) + runs("fedavg", 50.0, 70.0, SECOND)
    rows += runs("fedrod", 40.0, 60.0) + runs("fedrod", 40.0, 60.0, SECOND)
    rows += runs("map", *first) + runs("map", *second, SECOND)
    finding = EVERYWHERE.judge(rows)
    assert finding.verdict is whole
    assert finding.short == (
        f"global first in {each[0]} of 2 settings, personal first in {each[1]} of 2 settings"
    )
    gain = f"{gains[0]} ± 0.00 from FedAvg, {gains[1]} ± 0.00 from FedROD"
    assert f"MAP is first in {each[0]} of 2 settings ({FIRST} {gain};" in finding.numbers
    assert FEMNIST.report(rows).findings == findings(rows)


def test_the_last_ten_rounds_decide_the_global_goal() -> None:
    def made(method: str, accuracies: list[float], own: str) -> list[Row]:
        rows = [r for seed in range(3) for r in rounds(method, accuracies, seed=seed)]
        return [r | {"per_client": own if r["round"] == len(accuracies) else None} for r in rows]

    own = [" ".join([cell] * 100) for cell in ("70", "71")]
    rows = made("fedavg", [90.0] * 5 + [50.0] * 10, own[0])
    rows += made("map", [10.0] * 5 + [51.0] * 10, own[1])
    assert EVERYWHERE.judge(rows).verdict is Verdict.HOLDS
    rows = made("fedavg", [0.0, *[50.0] * 9], own[0]) + made("map", [60.0, *[49.0] * 9], own[1])
    assert EVERYWHERE.judge(rows).verdict is Verdict.HOLDS


def test_few_writers_or_seeds_or_a_missing_method_decide_nothing() -> None:
    enough = runs("fedavg", 50.0, 70.0) + runs("map", 51.0, 71.0)
    assert EVERYWHERE.judge(enough).verdict is Verdict.HOLDS
    two_seeds = [r for r in enough if r["seed"] < 2]
    one_method_short = [r for r in enough if r["seed"] < 2 or r["method"] == "map"]
    few = runs("fedavg", 50.0, 70.0, clients=99) + runs("map", 51.0, 71.0, clients=99)
    for rows in (two_seeds, one_method_short, few, [*enough[:3], *few[3:]]):
        assert EVERYWHERE.judge(rows).verdict is Verdict.NOT_TESTED
    more = enough + runs("fedavg", 50.0, 70.0, SECOND)
    assert "first in 1 of 1 settings" in EVERYWHERE.judge(more).numbers


def test_the_claim_is_judged_so_far_while_settings_are_missing() -> None:
    def played(columns: Sequence[str], others: Sequence[str] = FEMNIST.methods[:-1]) -> list[Row]:
        pairs = [*((name, 50.0, 70.0) for name in others), ("map", 51.0, 71.0)]
        return [r for column in columns for run in pairs for r in runs(*run, column)]

    *most, last = FEMNIST.columns
    for columns, so_far in ((most, True), ([*most, last], False)):
        finding = EVERYWHERE.judge(played(columns))
        assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, so_far)
    two_seeds = [r for r in played([last]) if r["seed"] < 2]
    assert EVERYWHERE.judge(played(most) + two_seeds).so_far
    assert EVERYWHERE.judge(played([*most, last], ["fedavg", "fedrod"])).so_far  # no Scaffold


def test_where_every_run_diverged_the_report_says_so_and_draws_nothing() -> None:
    report = FEMNIST.report([{"column": FIRST, "method": "map", "seed": 0} | NOTHING])
    assert report.sentences() == [f"MAP with {FIRST}, seed 0, diverged and is left out."]
    assert not report.figures


def test_a_run_that_diverged_is_a_seed_less() -> None:
    rows = runs("fedavg", 50.0, 70.0) + runs("map", 51.0, 71.0)
    lost: Row = {"column": FIRST, "method": "map", "seed": 2} | NOTHING
    ended = [r for r in rows if (r["method"], r["seed"]) != ("map", 2)]
    assert EVERYWHERE.judge([*ended, lost]).verdict is Verdict.NOT_TESTED
    fourth = lost | {"seed": 3}
    assert EVERYWHERE.judge([*rows, fourth]) == EVERYWHERE.judge(rows)
    assert EVERYWHERE.judge(rows).verdict is Verdict.HOLDS


def test_without_map_the_claim_is_not_tested() -> None:
    rows = rounds("fedavg", [50.0]) + rounds("fedrod", [51.0])
    assert EVERYWHERE.judge(rows).verdict is Verdict.NOT_TESTED
    assert findings(rows) == []


def test_map_alone_is_not_better_than_anyone() -> None:
    assert findings(rounds("map", [50.0])) == []


def test_methods_that_never_meet_in_a_setting_are_not_compared() -> None:
    assert findings(rounds("fedavg", [50.0]) + rounds("map", [51.0], SECOND)) == []
