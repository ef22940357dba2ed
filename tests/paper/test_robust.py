from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from numpy import testing

from fedmap.paper import STUDIES
from fedmap.paper.study import Row
from fedmap.simulate.attacks import attackers

ROBUST: Any = STUDIES["robust"]
Both = tuple[float | None, float | None]
# Without attackers, and with 30 % of each attack, by method and rule.
FOUND: dict[tuple[str, str], list[Both]] = {
    ("fedavg", "mean"): [(80.0, 90.0), (60.0, 70.0), (20.0, 30.0)],
    ("fedavg", "median"): [(78.0, 89.0), (61.5, 71.0), (50.0, 55.0)],
    ("map", "mean"): [(85.0, 91.0), (65.0, 75.0), (None, None)],
    ("map", "median"): [(84.0, 90.5), (64.0, 74.0), (52.0, 57.0)],
}


def numbers(method: str, rule: str, column: str, share: float, both: Both, seed: int = 0) -> Row:
    return {
        "column": column,
        "method": method,
        "rule": rule,
        "share": share,
        "seed": seed,
        "rounds": 20,
        "outcome": "diverged" if both == (None, None) else "done",
        "global": both[0],
        "personal": both[1],
    }


@pytest.fixture
def rows() -> list[Row]:
    """Flipped labels and flipped signs; the run without attackers stands with both."""
    found = []
    for place, column in enumerate(("labels", "signs"), 1):
        for (method, rule), values in FOUND.items():
            found.append(numbers(method, rule, column, 0.0, values[0]))
            found.append(numbers(method, rule, column, 0.3, values[place]))
    return found


def test_the_work_is_every_rule_with_every_attack_and_share() -> None:
    runs = ROBUST.work(ROBUST.choice("small", seeds=[0, 1]))
    settings = [run.settings for run in runs]
    found = {(s.seed, s.attack, s.attackers, s.method, s.aggregate) for s in settings}
    rules = ("mean", "median", "trimmed", "krum", "multi-krum", "clipped")
    harm = [("none", 0.0)]
    harm += [(attack, share) for attack in ("labels", "signs", "noise") for share in (0.1, 0.3)]
    assert found == {
        (seed, *one, method, rule)
        for seed in (0, 1)
        for one in harm
        for method in ("fedavg", "map")
        for rule in rules
    }
    assert [s.seed for s in settings] == [0] * 108 + [1] * 108  # a whole seed, then the next
    assert runs[2].group == "mean, 30 %"


def test_all_clients_take_part_in_every_round_of_a_small_run() -> None:
    settings = ROBUST.work(ROBUST.choice("small"))[0].settings
    place = (settings.data, settings.net, settings.samples, settings.clients, settings.fraction)
    steps = (settings.rounds, settings.epochs, settings.batch, settings.lr)
    assert place == ("fashion-mini", "lenet", 2000, 10, 1.0)
    assert steps == (20, 2, 16, 0.05)
    assert "rounds 20" in ROBUST.cuts("small")


def test_as_in_the_paper_it_is_the_whole_fashion_mnist() -> None:
    settings = ROBUST.work(ROBUST.choice("paper"))[0].settings
    assert (settings.data, settings.net, settings.samples) == ("fashion-mnist", "lenet", None)
    assert ROBUST.cuts("paper") == []


def test_in_seconds_there_are_flipped_signs_of_two_rules() -> None:
    settings = [run.settings for run in ROBUST.work(ROBUST.choice("smoke"))]
    harm = [(s.aggregate, s.attack, s.attackers) for s in settings if s.method == "map"]
    none, bad = ("none", 0.0), ("signs", 0.3)
    assert harm == [("mean", *none), ("mean", *bad), ("median", *none), ("median", *bad)]


def attacked(run: Any, share: float) -> Any:
    how = {"method": "map", "aggregate": "krum", "attackers": share, "seed": 3, "rounds": 12}
    run.column, run.settings = "signs", SimpleNamespace(**how)
    return run


def test_a_row_has_the_last_ten_rounds_and_the_honest_clients(
    finished_run: Callable[..., Any],
) -> None:
    accuracies = [0.05 * k for k in range(1, 13)]  # of rounds, and of clients
    run = attacked(finished_run(accuracies), 0.25)
    (found,) = ROBUST.numbers(run, Path())
    bad = attackers(3, 0.25, 12)
    honest = [a for k, a in enumerate(accuracies) if k not in bad]
    assert len(honest) == 9
    assert ROBUST.where(run) | found == numbers(
        "map", "krum", "signs", 0.25, (37.5, round(100 * sum(honest) / 9, 2)), seed=3
    ) | {"rounds": 12}


def test_a_run_that_diverged_has_no_numbers(finished_run: Callable[..., Any]) -> None:
    (found,) = ROBUST.numbers(attacked(finished_run([0.5] * 12, diverged=True), 0.25), Path())
    assert (found["outcome"], found["global"], found["personal"]) == ("diverged", None, None)


def test_the_rows_are_of_the_runs_that_ended(
    finished_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [attacked(finished_run([0.5] * 12, done=done), 0.25) for done in (True, False)]
    monkeypatch.setattr(type(ROBUST), "work", lambda study, choice: both)
    assert len(ROBUST.collect(ROBUST.choice("small"), Path())) == 1


def test_the_table_has_both_accuracies_and_the_run_without_attackers_once(rows: list[Row]) -> None:
    table = ROBUST.report(rows).tables["attacks"]
    assert table.head == ["method", "average", "no attackers", "labels, 30 %", "signs, 30 %"]
    assert table.lines == [
        ["fedavg", "mean", "80.0 / 90.0", "60.0 / 70.0", "20.0 / 30.0"],
        ["fedavg", "median", "78.0 / 89.0", "61.5 / 71.0", "50.0 / 55.0"],
        ["map", "mean", "85.0 / 91.0", "65.0 / 75.0", "0.0 / 0.0"],
        ["map", "median", "84.0 / 90.5", "64.0 / 74.0", "52.0 / 57.0"],
    ]
    assert table.caption == (
        "Global accuracy, mean of the last ten rounds / personal accuracy of the honest clients "
        "(fewer with more attackers, so compare within a column), in %, mean over seeds 0; clip 100"
    )


def test_a_cell_is_the_mean_over_the_seeds_and_a_diverged_run_has_lost_all() -> None:
    rows = [numbers("map", "mean", "labels", 0.0, both, seed) for seed, both in
            enumerate([(80.0, 90.0), (70.0, 60.0), (None, None)])]  # fmt: skip
    table = ROBUST.report(rows).tables["attacks"]
    assert table.lines == [["map", "mean", "50.0 / 50.0"]]
    assert table.caption.endswith("mean over seeds 0, 1, 2; clip 100")


def test_the_notes_say_what_most_attackers_do_and_count_each_run_once(rows: list[Row]) -> None:
    labels, signs = "labels flipped", "the change's sign flipped"
    means, best = "the mean's global model goes from", "best of 2 averages"
    assert ROBUST.report(rows).notes == [
        f"fedavg, 30 % with {labels}: {means} 80.0 % to 60.0 %; {best} is median with 61.5 %.",
        f"fedavg, 30 % with {signs}: {means} 80.0 % to 20.0 %; {best} is median with 50.0 %.",
        f"map, 30 % with {labels}: {means} 85.0 % to 65.0 %; {best} is mean with 65.0 %.",
        f"map, 30 % with {signs}: {means} 85.0 % to 0.0 %; {best} is median with 52.0 %.",
        "1 of 12 runs diverged; they count as 0 %.",
    ]


def test_what_is_not_done_has_a_dash_and_is_counted(rows: list[Row]) -> None:
    begun = [
        r for r in rows if r["method"] == "fedavg" and (r["column"], r["share"]) != ("signs", 0.3)
    ]
    report = ROBUST.report(begun[:-1])  # and without the median's run in the column of signs
    assert [line[4] for line in report.tables["attacks"].lines] == ["-", "-"]
    assert [note.partition(":")[0] for note in report.notes] == [
        "fedavg, 30 % with labels flipped",
        "0 of 4 runs diverged.",
        "Runs of these lines that are not done",
    ]
    assert report.notes[-1].startswith("Runs of these lines that are not done: 2 ")


def test_without_the_mean_or_without_attackers_there_is_nothing_to_say(rows: list[Row]) -> None:
    for some in (
        [r for r in rows if r["rule"] == "median"],
        [r for r in rows if not r["share"]],
        [r for r in rows if r["share"]],
    ):
        assert not [note for note in ROBUST.report(some).notes if "goes from" in note]


def drawn(figure: Figure, place: int, rule: str) -> Any:
    bars: list[Any] = figure.axes[place].containers
    return next(bar for bar in bars if bar.get_label() == rule)


def test_the_figure_has_a_line_for_each_rule_a_little_beside_the_others(rows: list[Row]) -> None:
    figure = ROBUST.report(rows).figures["attacks"]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        "FedAvg: labels flipped",
        "FedAvg: the change's sign flipped",
        "MAP: labels flipped",
        "MAP: the change's sign flipped",
    ]
    for place, ends in enumerate([(60.0, 61.5), (20.0, 50.0), (65.0, 64.0), (0.0, 52.0)]):
        for rule, end, aside in zip(("mean", "median"), ends, (-0.2, 0.2), strict=True):
            line = drawn(figure, place, rule).lines[0]
            start = FOUND["fedavg" if place < 2 else "map", rule][0][0]
            assert line.get_ydata(orig=False).tolist() == [start, end]
            testing.assert_allclose(line.get_xdata(orig=False), [aside, 30 + aside])


def test_the_figures_bars_are_the_deviation_over_the_seeds() -> None:
    rows = [numbers("map", "mean", "labels", 0.0, (value, 90.0), seed) for seed, value in
            enumerate([60.0, 80.0])]  # fmt: skip
    rows += [numbers("map", "mean", "labels", 0.1, (50.0, 90.0))]
    _, _, (bars,) = drawn(ROBUST.report(rows).figures["attacks"], 0, "mean")
    spans = [segment[:, 1].tolist() for segment in bars.get_segments()]
    deviation = 200**0.5  # of 60 and 80
    testing.assert_allclose(spans, [[70 - deviation, 70 + deviation], [50, 50]])


def test_every_point_of_the_figure_is_inside_it(rows: list[Row]) -> None:
    figure = ROBUST.report(rows).figures["attacks"]
    for axes in figure.axes:
        assert axes.get_ylim()[0] == 0
        assert axes.get_ylim()[1] > 85  # map's first point, in the last row
        assert list(axes.get_xticks()) == [0, 30]
