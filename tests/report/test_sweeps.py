"""What a sweep tried: the table, and which picture is drawn of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedmap.report.sweeps import Scale, Tried, sweep_figure, sweep_picture, tried_table


def tried(score: float | None, final: dict[str, Any] | None = None, **values: Any) -> Tried:
    return Tried(values, score, [] if final is None else [final], "done")


def drawn(found: list[Tried]) -> Figure:
    figure = sweep_figure(found)
    assert figure is not None
    return figure


def xs(line: Any) -> list[float]:
    return list(line.get_xdata())


def ys(line: Any) -> list[float]:
    return list(line.get_ydata())


def test_the_table_has_a_column_for_each_parameter() -> None:
    final = {"global_accuracy": 0.7, "personal_accuracy_all_clients": 0.9}
    lost = Tried({"alpha": 0.5, "transfer": "kd"}, None, [], "pruned in round 3")
    table = tried_table([tried(0.812, final, alpha=0.1), lost])
    assert table.head == ["alpha", "transfer", "held out", "global", "personal", "outcome"]
    assert table.lines == [
        ["0.1", "", "81.2", "70.0", "90.0", "done"],
        ["0.5", "kd", "-", "-", "-", "pruned in round 3"],
    ]


def test_one_parameter_gives_a_line_with_the_best_in_a_ring() -> None:
    axes = drawn([tried(s, alpha=a) for a, s in ((0.9, 0.7), (0.1, 0.6), (0.5, 0.8))]).axes[0]
    line, ring = axes.lines
    assert xs(line) == [0.1, 0.5, 0.9]
    assert ys(line) == pytest.approx([60, 80, 70])
    assert xs(ring) == [0.5]
    assert ys(ring) == pytest.approx([80])


def test_two_parameters_give_a_heat_map_with_a_number_in_each_cell() -> None:
    found = [tried(a + b, alpha=a, weight=b) for a in (0.1, 0.3) for b in (0.01, 0.02)]
    axes = drawn(found).axes[0]
    cells = {(t.get_position(), t.get_text()) for t in axes.texts}
    assert cells == {((0, 0), "11.0"), ((0, 1), "12.0"), ((1, 0), "31.0"), ((1, 1), "32.0")}
    assert [t.get_text() for t in axes.texts if t.get_fontweight() == "bold"] == ["32.0"]


def test_pairs_that_were_drawn_are_dots() -> None:
    found = [tried(0.5 + k / 10, alpha=k / 10, weight=10.0**-k) for k in (1, 2, 3)]
    axes = drawn(found).axes[0]
    assert len(axes.texts) == 0
    (dots,) = axes.collections
    assert np.asarray(dots.get_offsets()).tolist() == [
        [0.1, -1.0],
        [0.2, -2.0],
        [0.3, -3.0],
    ]  # logarithms


def test_more_parameters_give_a_line_for_each_combination() -> None:
    found = [tried(0.5 + k / 10, a=k, b=-k, c="xyz"[k]) for k in range(3)]
    axes = drawn(found).axes[0]
    lines = [line for line in axes.lines if len(xs(line)) == 3]
    assert [ys(line) for line in lines] == [[0, 1, 0], [0.5, 0.5, 0.5], [1, 0, 1]]
    assert [line.get_linewidth() for line in lines] == [1.2, 1.2, 3.0]  # the best is thick


def test_without_held_out_samples_the_tests_are_shown_and_nothing_is_marked() -> None:
    finals = [{"global_accuracy": g, "personal_accuracy_all_clients": 0.9} for g in (0.5, 0.7)]
    found = [tried(None, final, alpha=a) for a, final in zip((0.1, 0.5), finals, strict=True)]
    axes = drawn(found).axes[0]
    (line,) = axes.lines
    assert ys(line) == pytest.approx([70, 80])
    assert "not to choose by" in axes.get_ylabel()


def test_where_nothing_came_to_its_end_there_is_no_picture(tmp_path: Path) -> None:
    assert sweep_picture([tried(None, alpha=0.1)], tmp_path / "a.png") is None


def test_numbers_over_magnitudes_are_placed_by_their_logarithms() -> None:
    assert Scale.of("w", [0.1, 0.001]).places == pytest.approx([-3, -1])
    assert Scale.of("w", [0.5, 0.1]).places == [0.1, 0.5]
    assert Scale.of("w", ["kd", 1, "kd"]).places == [0, 1]
