from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmap.paper import STUDIES
from fedmap.paper.figures.femnist import curve, findings
from fedmap.paper.finding import Estimate, Verdict
from fedmap.paper.study import Choice, Row

FEMNIST = STUDIES["femnist"]
FIRST, SECOND = FEMNIST.columns[:2]
(EVERYWHERE,) = FEMNIST.claims()
NOTHING: Row = dict.fromkeys(["round", "global", "personal", "download", "per_client"])


def rounds(
    method: str, accuracies: list[float], column: str = FIRST, seed: int = 0, above: float = 20.0
) -> list[Row]:
    """Global accuracies by round; the personal ones are so much above, the download's one point."""
    where = {"column": column, "method": method, "seed": seed}
    return [
        where
        | {"round": t, "global": accuracy, "personal": accuracy + above, "download": accuracy + 1}
        for t, accuracy in enumerate(accuracies, 1)
    ]


def test_work_is_the_chosen_fraction_and_epochs() -> None:
    choice = FEMNIST.choice("paper", columns=["Q=0.3, E=5"], methods=["map"])
    runs: Any = FEMNIST.work(choice)
    (run,) = runs
    assert (run.settings.fraction, run.settings.epochs) == (0.3, 5)


def test_the_columns_are_the_papers_fractions_and_epochs() -> None:
    assert FEMNIST.columns == [f"Q={q}, E={e}" for q in ("0.1", "0.3") for e in (2, 5, 10)]


def test_the_small_scale_has_fewer_samples_and_rounds() -> None:
    assert FEMNIST.cuts("small")[:2] == ["samples 4000", "rounds 30"]
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
    first = {"round": 1, "global": 25.0, "personal": 26.0, "download": 24.0, "per_client": None}
    last: Row = {"round": 2, "global": 50.0, "personal": 51.0, "download": 49.0}
    last |= {"per_client": "25.00 50.00"}
    only = last | {"round": 1, "per_client": "50.00"}
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


def test_the_table_has_what_decides_and_the_last_round() -> None:
    accuracies = [100.0, 50.0, *[10.0] * 8, 30.0]  # of the last ten, the first is 50: mean 16
    rows = rounds("map", accuracies) + rounds("map", [12.0] * 11, seed=2)
    rows += rounds("fedavg", [11.0] * 11) + rounds("fedavg", [11.0] * 11, seed=2)
    own = {("map", 0): "60 70", ("map", 2): "64 70", ("fedavg", 0): "60 60", ("fedavg", 2): "60 62"}
    for r in rows:
        r["per_client"] = own[r["method"], r["seed"]] if r["round"] == 11 else None
    table = FEMNIST.report(rows).tables["femnist"]
    # global: seeds gain 5 and 1. Personal: the writers gain 0 and 4, 10 and 8, so 2 and 9
    ours = ["14.0 ± 2.8", "+3.00 ± 2.00", "21.0", "66.0 ± 1.4", "+5.50 ± 3.50", "41.0", "22.0"]
    plain = ["11.0 ± 0.0", "-", "11.0", "60.5 ± 0.7", "-", "31.0", "12.0"]
    assert table.lines == [[FIRST, "MAP", "0, 2", *ours], [FIRST, "FedAvg", "0, 2", *plain]]
    assert table.head == [
        *("column", "method", "seeds"),
        *("global, last 10", "from FedAvg", "last round"),
        *("personal, all writers", "from FedAvg", "last round", "its download"),
    ]


def test_the_table_shows_what_is_there() -> None:
    rows = rounds("fedavg", [1.0]) + rounds("map", [2.0]) + rounds("fedavg", [3.0], SECOND)
    rows += rounds("map", [5.0], SECOND, seed=1)
    lines = FEMNIST.report(rows).tables["femnist"].lines
    assert lines == [
        [FIRST, "FedAvg", "0", "1.0", "-", "1.0", "-", "-", "21.0", "2.0"],
        [FIRST, "MAP", "0", "2.0", "+1.00", "2.0", "-", "-", "22.0", "3.0"],
        [SECOND, "FedAvg", "0", "3.0", "-", "3.0", "-", "-", "23.0", "4.0"],
        [SECOND, "MAP", "1", "5.0", "-", "5.0", "-", "-", "25.0", "6.0"],  # no seed in common
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
    ("first", "second", "whole", "each"),
    [
        ((51.0, 71.0), (51.0, 71.0), Verdict.HOLDS, (Verdict.HOLDS, Verdict.HOLDS)),
        ((51.0, 71.0), (51.0, 69.0), Verdict.IN_PART, (Verdict.HOLDS, Verdict.IN_PART)),
        ((51.0, 69.0), (49.0, 69.0), Verdict.IN_PART, (Verdict.IN_PART, Verdict.FAILS)),
        ((50.0, 70.0), (49.0, 69.0), Verdict.FAILS, (Verdict.FAILS, Verdict.FAILS)),
    ],
)
def test_map_is_better_in_every_setting(
    first: tuple[float, float],
    second: tuple[float, float],
    whole: Verdict,
    each: tuple[Verdict, Verdict],
) -> None:
    rows = runs("fedavg", 50.0, 70.0) + runs("fedavg", 50.0, 70.0, SECOND)
    rows += runs("fedrod", 40.0, 72.0) + runs("fedrod", 40.0, 60.0, SECOND)
    rows += runs("map", first[0], first[1] + 2) + runs("map", *second, SECOND)

    def gain(ours: float, other: float) -> str:
        return f"{Estimate(ours - other, 0.0)}"

    finding, made = EVERYWHERE.judge(rows), findings(rows)
    assert finding.verdict is whole
    assert tuple(one.verdict for one in made) == each
    own = first[1] + 2
    assert finding.short == (
        f"global {gain(first[0], 50)} from FedAvg and personal {gain(own, 72)} from FedROD, the "
        f"best others ({FIRST}); "
        f"global {gain(second[0], 50)} from FedAvg and personal {gain(second[1], 70)} from FedAvg, "
        f"the best others ({SECOND}); 2 of 6 settings, 100 of 3550 writers"
    )
    assert made[0].numbers == (
        f"Global accuracy, {FIRST}: MAP {gain(first[0], 50)} from FedAvg, {gain(first[0], 40)} "
        f"from FedROD; Global accuracy, {SECOND}: MAP {gain(second[0], 50)} from FedAvg, "
        f"{gain(second[0], 40)} from FedROD"
    )
    assert finding.numbers == "; ".join(one.numbers for one in made)
    assert FEMNIST.report(rows).findings == made


def test_a_writer_counts_once_however_many_seeds_there_are() -> None:
    rows = runs("fedavg", 50.0, 70.0, clients=100) + runs("map", 51.0, 70.0, clients=100)
    for r in rows:
        if r["method"] == "map":  # half of the writers gain 2 points with every seed
            r["per_client"] = " ".join(["72"] * 50 + ["70"] * 50)
    personal = findings(rows)[1].numbers
    # squares from the mean of 1 are 1 each: (100 / 99 / 100) ** 0.5
    assert personal == f"Personal accuracy, {FIRST}: MAP +1.00 ± 0.10 from FedAvg"


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


def test_a_method_that_diverged_is_named_with_the_claim() -> None:
    rows = runs("fedavg", 50.0, 70.0) + runs("map", 51.0, 71.0)
    lost = {"column": FIRST, "method": "scaffold", "seed": 1} | NOTHING
    assert EVERYWHERE.judge([*rows, lost]).numbers.endswith("; Scaffold, seed 1, diverged")


def test_few_writers_or_seeds_or_a_missing_method_decide_nothing() -> None:
    enough = runs("fedavg", 50.0, 70.0) + runs("map", 51.0, 71.0)
    assert EVERYWHERE.judge(enough).verdict is Verdict.HOLDS
    two_seeds = [r for r in enough if r["seed"] < 2]
    one_method_short = [r for r in enough if r["seed"] < 2 or r["method"] == "map"]
    few = runs("fedavg", 50.0, 70.0, clients=99) + runs("map", 51.0, 71.0, clients=99)
    for rows in (two_seeds, one_method_short, few, [*enough[:3], *few[3:]]):
        assert EVERYWHERE.judge(rows).verdict is Verdict.NOT_TESTED
    more = enough + runs("fedavg", 50.0, 70.0, SECOND)
    assert EVERYWHERE.judge(more) == EVERYWHERE.judge(enough)
    other = [r | {"seed": r["seed"] + 2} if r["method"] == "map" else r for r in enough]
    assert EVERYWHERE.judge(other).verdict is Verdict.NOT_TESTED  # one seed in common


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
    assert EVERYWHERE.judge([*rows, fourth]).short == EVERYWHERE.judge(rows).short
    assert EVERYWHERE.judge(rows).verdict is Verdict.HOLDS


def test_a_method_without_enough_seeds_is_left_out_and_the_rest_decides() -> None:
    rows = [r for m in FEMNIST.methods[:-1] for r in runs(m, 50.0, 70.0)] + runs("map", 51.0, 71.0)
    lost: Row = {"column": FIRST, "method": "scaffold", "seed": 2} | NOTHING
    ended = [r for r in rows if (r["method"], r["seed"]) != ("scaffold", 2)]
    finding = EVERYWHERE.judge([*ended, lost])
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)
    assert "from Scaffold" not in finding.numbers


def test_a_variant_of_map_is_not_one_of_the_others() -> None:
    rows = runs("fedavg", 50.0, 70.0) + runs("map", 51.0, 71.0)
    assert EVERYWHERE.judge(rows + runs("map[alpha=0.5]", 60.0, 80.0)) == EVERYWHERE.judge(rows)


def test_methods_have_the_same_color_whoever_else_is_there() -> None:
    rows = rounds("fedavg", [1.0]) + rounds("scaffold", [1.0]) + rounds("map", [1.0])
    all_three, two = (
        {
            line.get_label(): line.get_color()
            for line in FEMNIST.report(some).figures["curves"].axes[0].lines
        }
        for some in (rows, [r for r in rows if r["method"] != "scaffold"])
    )
    assert two == {name: color for name, color in all_three.items() if name != "Scaffold"}


def test_the_writers_that_are_not_there_are_named() -> None:
    assert FEMNIST.not_run(runs("map", 1.0, 1.0)) == ["3450 of 3550 writers"]
    assert FEMNIST.not_run(rounds("map", [1.0])) == []


def test_without_map_the_claim_is_not_tested() -> None:
    rows = rounds("fedavg", [50.0]) + rounds("fedrod", [51.0])
    assert EVERYWHERE.judge(rows).verdict is Verdict.NOT_TESTED
    assert findings(rows) == []


def test_map_alone_is_not_better_than_anyone() -> None:
    assert findings(rounds("map", [50.0])) == []


def test_methods_that_never_meet_in_a_setting_are_not_compared() -> None:
    assert findings(rounds("fedavg", [50.0]) + rounds("map", [51.0], SECOND)) == []
