from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from fedmap.paper import STUDIES
from fedmap.paper.figures.joint import measured, printed
from fedmap.paper.study import Row

RunRow = Callable[..., Row]
JOINT = STUDIES["joint"]
MLP, LENET = "fashion-mnist/mlp", "fashion-mnist/lenet"


def two_columns(
    run_row: RunRow, method: str, first: tuple[float, float], second: tuple[float, float]
) -> list[Row]:
    return [
        run_row(method, (0.0, own), (steady, 0.0), column=column)
        for column, (steady, own) in ((MLP, first), (LENET, second))
    ]


def test_a_point_is_the_columns_last_ten_rounds_and_all_clients(run_row: RunRow) -> None:
    rows = two_columns(run_row, "map", (80.0, 90.0), (84.0, 96.0))
    rows.append(run_row("map", (0.0, 0.0), group="group 1"))
    assert measured(rows, MLP) == {}  # nothing to compare it with
    rows.append(run_row("fedavg", (0.0, 80.0), (82.0, 0.0)))  # in one column only
    assert measured(rows, MLP) == {"fedavg": (82, 80), "map": (80, 90)}
    assert measured(rows, LENET) == {}


def test_methods_of_other_seeds_are_placed_by_the_seeds_that_they_share(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (70.0 + 4 * s, 80.0 + s), seed=s) for s in range(3)]
    rows += [run_row("map", (71.0, 82.0)), run_row("map", (73.0, 85.0), seed=1)]  # +1, -1; +2, +4
    rows += [run_row("ditto", (80.0, 82.0), seed=2), run_row("moon", (90.0, 90.0), seed=3)]
    rows += [run_row("scaffold", (None, None))]  # diverged
    assert measured(rows, MLP) == {"fedavg": (74, 81), "ditto": (76, 81), "map": (74, 84)}


def test_a_method_without_a_global_model_has_no_point(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("fedrep", (None, 90.0), outcome="done")]
    assert measured(rows, MLP) == {"fedavg": (80, 90)}


def test_the_papers_points_are_of_the_same_column() -> None:
    assert printed(["map", "local"], MLP) == {"map": (88.1, 92.1)}
    assert printed(["map"], LENET) == {"map": (88.4, 91.8)}


def test_every_column_has_its_own_line_of_pictures(run_row: RunRow) -> None:
    rows = two_columns(run_row, "fedavg", (80.0, 90.0), (84.0, 96.0))
    first, _, second, _ = JOINT.report(rows).figures["joint"].axes
    assert (dots(first), dots(second)) == ([(80, 90)], [(84, 96)])
    titles = [axes.get_title(loc="left") for axes in (first, second)]
    assert titles == [f"{c} here: last ten rounds, all clients" for c in (MLP, LENET)]


def dots(axes: Axes) -> list[tuple[float, float]]:
    return [tuple(np.asarray(mark.get_offsets())[0]) for mark in axes.collections]


def test_ours_is_drawn_on_the_left_and_the_papers_on_the_right(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0)), run_row("map", (82.0, 91.0))]
    report = JOINT.report(rows)
    left, right = report.figures["joint"].axes
    assert dots(left) == [(80, 90), (82, 91)]
    assert dots(right) == [(86.2, 90.5), (88.1, 92.1)]
    labels: list[Any] = list(left.texts)
    names = {label.get_text(): tuple(label.xy) for label in labels}
    assert names == {"FedAvg": (80, 90), "MAP": (82, 91)}
    assert (left.get_xlabel(), left.get_ylabel()) == ("global accuracy, %", "personal accuracy, %")


def test_a_method_far_below_the_others_is_named_and_not_drawn(run_row: RunRow) -> None:
    own = {"fedavg": 90.0, "fedrs": 91.0, "map": 92.0, "ditto": 93.0}

    def drawn(**more: float) -> tuple[list[tuple[float, float]], list[str]]:
        rows = [run_row(m, (80.0, score)) for m, score in (own | more).items()]
        axes = JOINT.report(rows).figures["joint"].axes[0]
        return dots(axes), [text.get_text() for text in axes.texts]

    # personal: the middle one is 91, and half of them are at most 1 from it
    points, texts = drawn(feddyn=84.9)
    assert (80, 84.9) not in points
    assert "far below: FedDyn (80.0, 84.9)" in texts
    points, texts = drawn(feddyn=85.1)
    assert (80, 85.1) in points
    assert "FedDyn" in texts


def test_a_method_with_less_than_three_seeds_is_hollow(run_row: RunRow) -> None:
    rows = [run_row("fedavg", (80.0, 90.0), seed=seed) for seed in range(3)]
    rows += [run_row("map", (81.0, 91.0), seed=seed) for seed in range(2)]
    marks: list[Any] = list(JOINT.report(rows).figures["joint"].axes[0].collections)
    filled = [mark.get_facecolor().tolist() == mark.get_edgecolor().tolist() for mark in marks]
    assert filled == [True, False]


def test_our_methods_have_another_mark_and_a_bold_name(run_row: RunRow) -> None:
    rows = [run_row(m, (80.0 + i, 90.0)) for i, m in enumerate(("fedavg", "map", "scamap"))]
    axes = JOINT.report(rows).figures["joint"].axes[0]
    marks: list[Any] = list(axes.collections)
    colors = [mark.get_edgecolor().tolist() for mark in marks]
    corners = [len(mark.get_paths()[0].vertices) for mark in marks]
    assert colors[0] != colors[1] == colors[2]
    assert corners[0] > corners[1] == corners[2]  # a circle and two diamonds
    weights = {text.get_text(): text.get_fontweight() for text in axes.texts}
    assert weights == {"FedAvg": "normal", "MAP": "bold", "ScaMAP": "bold"}
