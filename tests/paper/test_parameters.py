from collections.abc import Callable

import numpy as np
import pytest

from fedmap.paper import STUDIES
from fedmap.paper.figures.parameters import PREFERRED, SETTINGS, findings
from fedmap.paper.finding import Verdict
from fedmap.paper.report import size_in_words
from fedmap.paper.study import Row

RunRow = Callable[..., Row]
PARAMETERS = STUDIES["parameters"]
pytestmark = pytest.mark.usefixtures("one_seed_is_enough")
LENET = "fashion-mnist/lenet"
OTHERS = [name for name in SETTINGS if name != PREFERRED]
(CLAIM,) = PARAMETERS.claims()


def setting(run_row: RunRow, name: str, both: tuple[float, float], **where: object) -> Row:
    method = "fedavg" if name == "default" else "map"
    own = {"personal_all_clients": both[1], "per_client": f"{both[1]:.2f} {both[1]:.2f}"}
    return run_row(method, (0.0, 0.0), both, group=name, **own, **where)


def test_there_are_the_papers_twenty_settings() -> None:
    assert len(SETTINGS) == 20
    assert SETTINGS["alpha 0.25, mmd 0.1"] == {"alpha": 0.25, "transfer": "mmd", "weight": 0.1}
    assert {setting["alpha"] for setting in SETTINGS.values()} == {0.1, 0.25, 0.5, 0.75, 0.9}
    transfers = {(setting["transfer"], setting["weight"]) for setting in SETTINGS.values()}
    assert transfers == {("kd", 0.01), ("kd", 0.1), ("mmd", 0.01), ("mmd", 0.1)}


def test_the_page_says_what_the_small_scale_cuts(reproduction: str) -> None:
    assert size_in_words(PARAMETERS.cuts("small")) in reproduction
    assert PARAMETERS.cuts("paper") == []


def test_the_table_has_means_over_columns_and_seeds(run_row: RunRow) -> None:
    rows = [
        run_row("fedavg", (60.0, 70.0), (61.0, 75.0)),
        run_row("map", (70.0, 80.0), (71.0, 82.0), group=PREFERRED),
        run_row("map", (74.0, 90.0), (73.0, 92.0), group=PREFERRED, column=LENET),
        run_row("map", (78.0, 91.0), (81.0, 93.0), group=PREFERRED, column=LENET, seed=1),
    ]
    table = PARAMETERS.report(rows).tables["parameters"]
    assert table.lines == [
        ["FedAvg", "61.0", "60.0", "70.0", "70.0"],
        [f"MAP, {PREFERRED}", "75.0", "74.0", "87.0", "87.0"],
    ]
    assert table.caption == f"Accuracy in %, average over fashion-mnist/mlp, {LENET}"


def test_a_setting_that_diverged_somewhere_is_left_out(run_row: RunRow) -> None:
    rows = [setting(run_row, "default", (60.0, 70.0)), setting(run_row, OTHERS[0], (65.0, 75.0))]
    rows.append(run_row("map", (None, None), group=OTHERS[0], column=LENET))
    report = PARAMETERS.report(rows)
    assert [line[0] for line in report.tables["parameters"].lines] == ["FedAvg"]
    assert report.notes == [
        f"map ({OTHERS[0]}) on {LENET}, seed 0, diverged; this group is left out."
    ]


def test_the_scatter_has_a_point_for_each_setting_and_lines_for_fedavg(run_row: RunRow) -> None:
    points = {PREFERRED: (66.0, 76.0), OTHERS[0]: (67.0, 71.0), "default": (60.0, 70.0)}
    rows = [setting(run_row, name, both) for name, both in points.items()]
    (axes,) = PARAMETERS.report(rows).figures["scatter"].axes
    offsets = [np.asarray(mark.get_offsets()) for mark in axes.collections]
    drawn = [tuple(found[0]) for found in offsets if len(found)]
    assert drawn == [(67, 71), (66, 76), (60, 70)]
    across, up = axes.lines
    assert set(np.array(across.get_xdata())) == {60}
    assert set(np.array(up.get_ydata())) == {70}


def test_the_legend_has_the_color_of_each_alpha_and_the_mark_of_each_transfer(
    run_row: RunRow,
) -> None:
    rows = [setting(run_row, "alpha 0.25, mmd 0.1", (66.0, 76.0))]
    (axes,) = PARAMETERS.report(rows).figures["scatter"].axes
    point, *legend = axes.collections
    alphas = [f"alpha {alpha}" for alpha in ("0.1", "0.25", "0.5", "0.75", "0.9")]
    transfers = [f"{name}, weight {w}" for name in ("KD", "MMD") for w in ("0.01", "0.1")]
    assert [mark.get_label() for mark in legend] == [*alphas, *transfers]
    color, mark = legend[1], legend[-1]
    assert np.array_equal(np.asarray(point.get_edgecolor()), np.asarray(color.get_facecolor()))
    assert len(np.asarray(point.get_facecolor())) == 0  # hollow
    corners = [np.asarray(which.get_paths()[0].vertices).tolist() for which in (point, mark)]
    assert corners[0] == corners[1]


def twenty(
    run_row: RunRow, ours: tuple[float, float], others: list[tuple[float, float]]
) -> list[Row]:
    """FedAvg at 60 and 70, the preferred setting, and the other nineteen, the given ones first."""
    rest = others + [(61.5, 71.5)] * (len(OTHERS) - len(others))
    points = {"default": (60.0, 70.0), PREFERRED: ours} | dict(zip(OTHERS, rest, strict=True))
    return [setting(run_row, name, both) for name, both in points.items()]


@pytest.mark.parametrize(
    ("ours", "others", "verdict", "numbers"),
    [
        ((62.0, 72.0), [], Verdict.HOLDS, (1, 1, 20)),
        ((62.0, 72.0), [(63.0, 73.0)] * 2, Verdict.HOLDS, (3, 3, 20)),
        ((62.0, 72.0), [(63.0, 71.5)] * 3, Verdict.IN_PART, (4, 1, 20)),
        ((62.0, 72.0), [(59.0, 71.0)], Verdict.IN_PART, (1, 1, 19)),
        ((59.0, 72.0), [], Verdict.FAILS, (20, 1, 19)),
        ((62.0, 69.0), [], Verdict.FAILS, (1, 20, 19)),
    ],
)
def test_the_preferred_setting_is_among_the_first_and_all_are_above_fedavg(
    ours: tuple[float, float],
    others: list[tuple[float, float]],
    verdict: Verdict,
    numbers: tuple[int, int, int],
    run_row: RunRow,
) -> None:
    finding = CLAIM.judge(twenty(run_row, ours, others))
    assert finding.verdict is verdict
    assert finding.numbers == (
        f"number {numbers[0]} in global and {numbers[1]} in personal accuracy; {numbers[2]} of 20 "
        "are above FedAvg in both"
    )


@pytest.mark.parametrize(
    ("lost", "verdict"), [(0, Verdict.HOLDS), (9, Verdict.IN_PART), (10, Verdict.FAILS)]
)
def test_how_many_settings_are_above_fedavg(lost: int, verdict: Verdict, run_row: RunRow) -> None:
    rows = twenty(run_row, (62.0, 72.0), [(59.0, 71.0)] * lost)
    all_above, _ = findings(rows)
    assert all_above.verdict is verdict
    assert all_above.numbers == (
        f"Of 20 settings, {20 - lost} are above FedAvg in global, 20 in personal accuracy and "
        f"{20 - lost} in both"
    )


@pytest.mark.parametrize(
    ("better", "verdict"),
    [
        ([(64.5, 74.0), (64.0, 74.5)], Verdict.HOLDS),
        ([(64.0, 71.0), (65.0, 71.0), (63.0, 71.0)], Verdict.IN_PART),
        ([(64.0, 74.0), (65.0, 75.0), (63.0, 71.0)], Verdict.IN_PART),
        ([(64.0, 74.0), (65.0, 75.0), (63.0, 73.0)], Verdict.FAILS),
    ],
)
def test_where_the_preferred_setting_stands(
    better: list[tuple[float, float]], verdict: Verdict, run_row: RunRow
) -> None:
    _, preferred = findings(twenty(run_row, (62.0, 72.0), better))
    assert preferred.verdict is verdict


def test_the_first_settings_are_named_with_their_accuracy(run_row: RunRow) -> None:
    rows = twenty(run_row, (62.0, 72.0), [(64.5, 71.0), (61.0, 74.5)])
    _, preferred = PARAMETERS.report(rows).findings
    assert preferred.numbers == (
        f"{PREFERRED} is number 2 in global and number 2 in personal accuracy; the first are "
        f"{OTHERS[0]} (64.5) and {OTHERS[1]} (74.5)"
    )


def test_without_fedavg_or_the_preferred_setting_the_claim_is_not_tested(run_row: RunRow) -> None:
    for name in ("default", PREFERRED, OTHERS[0]):
        rows = [setting(run_row, name, (60.0, 70.0))]
        assert CLAIM.judge(rows).verdict is Verdict.NOT_TESTED


def test_fedavg_and_the_preferred_setting_alone_decide_the_claim(run_row: RunRow) -> None:
    rows = [setting(run_row, "default", (60.0, 70.0)), setting(run_row, PREFERRED, (61.5, 71.5))]
    finding = CLAIM.judge(rows)
    assert (finding.verdict, finding.so_far) == (Verdict.HOLDS, True)
    assert finding.short.endswith("above FedAvg in both, 1 of 6 columns")
    every = [r | {"column": column} for column in PARAMETERS.columns for r in rows]
    assert not CLAIM.judge(every).so_far


def test_a_setting_with_fedavgs_accuracy_is_not_above_it(run_row: RunRow) -> None:
    rows = twenty(run_row, (62.0, 72.0), [(60.0, 71.0), (62.0, 70.0)])
    numbers = "19 are above FedAvg in global, 19 in personal accuracy and 18 in both"
    assert findings(rows)[0].numbers == f"Of 20 settings, {numbers}"


def test_a_statement_needs_its_settings(run_row: RunRow) -> None:
    assert findings([setting(run_row, "default", (60.0, 70.0))]) == []
    assert findings([setting(run_row, OTHERS[0], (60.0, 70.0))]) == []
