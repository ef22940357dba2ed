"""Every number that a table or a picture shows, on results made by hand."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from fedmap.data import synthetic
from fedmap.errors import FedmapError
from fedmap.federation import Federation, partition
from fedmap.report.plots import (
    COLORS,
    curves,
    curves_figure,
    holdings_figure,
    name_points,
    save,
    smooth,
)
from fedmap.report.table import COLUMNS, NUMBERS, Row, Table, as_json, as_table, percent, rows
from fedmap.simulate.result import Result, summary
from fedmap.simulate.settings import Settings


def hand_made(
    global_: Sequence[float | None] = (0.5,),
    personal: Sequence[float] | None = None,
    *,
    all_clients: float = 0.25,
    seconds: Sequence[float] | None = None,
    seed: int = 0,
    folder: str = "runs/map",
) -> Result:
    """The result of a run with these accuracies and seconds by round."""
    personal = personal or [0.75] * len(global_)
    seconds = seconds or [1.0] * len(global_)
    records = [
        {"round": i + 1, "global_accuracy": g, "personal_accuracy": p, "seconds": s}
        for i, (g, p, s) in enumerate(zip(global_, personal, seconds, strict=True))
    ]
    final = summary(records) | {"personal_accuracy_all_clients": all_clients}
    settings = Settings.of({"method": "fedavg", "data": "synthetic", "seed": seed})
    return Result(settings, records, final, Path(folder), {})


def rounds(*pairs: tuple[float | None, float]) -> list[dict[str, float | None]]:
    return [{"global_accuracy": g, "personal_accuracy": p} for g, p in pairs]


def test_the_steady_numbers_are_means_of_exactly_the_last_ten_rounds() -> None:
    found = summary(rounds(*((k / 100, k / 50) for k in range(12))))
    assert found["global_accuracy_last_10"] == pytest.approx(0.065)  # of 0.02 to 0.11
    assert found["personal_accuracy_last_10"] == pytest.approx(0.13)


def test_the_last_round_stands_beside_the_steady_numbers() -> None:
    found = summary(rounds((0.1, 0.3), (0.2, 0.4)))
    assert (found["rounds"], found["global_accuracy"], found["personal_accuracy"]) == (2, 0.2, 0.4)


def test_of_fewer_than_ten_rounds_the_steady_numbers_are_means_of_all() -> None:
    found = summary(rounds((0.1, 0.3), (0.2, 0.4), (0.6, 0.8)))
    assert found["global_accuracy_last_10"] == pytest.approx(0.3)
    assert found["personal_accuracy_last_10"] == pytest.approx(0.5)


def test_without_a_global_model_there_is_no_global_number() -> None:
    found = summary(rounds((None, 0.3), (None, 0.5)))
    assert found["global_accuracy"] is None
    assert found["global_accuracy_last_10"] is None
    assert found["personal_accuracy_last_10"] == pytest.approx(0.4)


def test_accuracy_on_unseen_samples_is_summarized_where_it_was_measured() -> None:
    records = rounds((0.5, 0.5), (0.5, 0.5))
    assert "global_accuracy_unseen" not in summary(records)
    for record, unseen in zip(records, (0.2, 0.4), strict=True):
        record["global_accuracy_unseen"] = unseen
    found = summary(records)
    assert found["global_accuracy_unseen"] == 0.4
    assert found["global_accuracy_unseen_last_10"] == pytest.approx(0.3)


def test_a_cell_is_the_mean_over_seeds_and_their_standard_deviation() -> None:
    runs = [hand_made([accuracy], seed=k) for k, accuracy in enumerate((0.60, 0.70, 0.95))]
    (row,) = rows({"fedavg": runs})
    assert row.cells[0] == "75.0 ± 18.0"  # the root of (15² + 5² + 20²) / 2


def test_two_seeds_have_a_deviation() -> None:
    assert percent([0.5, None, 0.7]) == "60.0 ± 14.1"  # the root of 10² + 10²


def test_one_seed_has_no_deviation() -> None:
    assert percent([0.1234]) == "12.3"


def test_a_cell_without_a_number_is_a_dash() -> None:
    (row,) = rows({"fedrep": [hand_made([None], [0.8], all_clients=0.9)]})
    assert row.cells == ["-", "-", "90.0", "-"]


def test_a_method_without_a_finished_run_has_dashes_alone() -> None:
    assert rows({"map": []}) == [Row("map", ["-"] * len(COLUMNS), "-")]


def test_each_number_stands_in_its_own_column() -> None:
    run = hand_made([0.1, 0.3], [0.4, 0.8], all_clients=0.9)
    shown = dict(zip(COLUMNS.values(), rows({"map": [run]})[0].cells, strict=True))
    assert shown == {
        "global": "30.0",
        "global, last 10": "20.0",
        "personal": "90.0",
        "own classes": "-",
    }


def test_other_columns_can_be_asked_for() -> None:
    run = hand_made([0.1, 0.3], [0.4, 0.8])
    (row,) = rows({"map": [run]}, ["personal_accuracy", "personal_accuracy_last_10"])
    assert row.cells == ["80.0", "60.0"]
    assert as_table([row], heads=["one", "two"]).head == ["method", "one", "two", "s/round"]


def test_what_is_known_of_one_method_only_has_a_column_with_dashes() -> None:
    cells = ["1", "2", "3", "4"]
    known = Row("map", cells, "0.1", held_out="5", gain="+6.0", losers="7 of 8")
    table = as_table([Row("local", cells, "0.1"), known])
    assert table.head[5:] == ["held out", "gain over local", "clients that lose", "s/round"]
    assert [line[5:] for line in table.lines] == [
        ["-", "-", "-", "0.1"],
        ["5", "+6.0", "7 of 8", "0.1"],
    ]


def test_the_score_on_held_out_samples_is_the_mean_of_both() -> None:
    run = hand_made([0.1])
    run.final.update(global_accuracy_validation=0.5, personal_accuracy_validation=0.7)
    assert [row.held_out for row in rows({"a": [run], "b": [hand_made([0.1])]})] == ["60.0", ""]


def test_seconds_are_the_mean_over_all_rounds_of_all_seeds() -> None:
    runs = [hand_made([0.5, 0.5], seconds=s) for s in ([1.0, 2.0], [3.0, 6.0])]
    assert rows({"map": runs})[0].seconds == "3.00"


def test_rows_become_a_table_with_the_method_first_and_the_seconds_last() -> None:
    table = as_table([Row("map", ["1", "2", "3", "4"], "0.10")], "Accuracy")
    assert table.caption == "Accuracy"
    assert table.head == ["method", *COLUMNS.values(), "s/round"]
    assert table.lines == [["map", "1", "2", "3", "4", "0.10"]]


def test_json_has_one_entry_for_each_run_with_shares_as_they_are() -> None:
    first = hand_made([0.1, 0.3], [0.4, 0.8], all_clients=0.9, folder="runs/a")
    second = hand_made([None], [0.5], all_clients=0.6, seed=7, folder="runs/b")
    first.final["global_macro_f1"] = 0.25
    unknown = dict.fromkeys(NUMBERS)
    assert as_json({"map": [first], "fedrep": [second]}) == [
        unknown
        | {
            "method": "map",
            "seed": 0,
            "folder": "runs/a",
            "global_accuracy": 0.3,
            "global_accuracy_last_10": pytest.approx(0.2),
            "personal_accuracy": 0.8,
            "personal_accuracy_last_10": pytest.approx(0.6),
            "personal_accuracy_all_clients": 0.9,
            "left_out": 0,
            "global_macro_f1": 0.25,
        },
        unknown
        | {
            "method": "fedrep",
            "seed": 7,
            "folder": "runs/b",
            "global_accuracy": None,
            "global_accuracy_last_10": None,
            "personal_accuracy": 0.5,
            "personal_accuracy_last_10": 0.5,
            "personal_accuracy_all_clients": 0.6,
            "left_out": 0,
        },
    ]


TABLE = Table("100 % of α", ["name", "value"], [["a_b", "1.0 ± 0.1"], ["c, d", "−2.0"]])


def test_markdown_has_a_rule_below_the_head() -> None:
    assert TABLE.markdown() == (
        "| name | value |\n| --- | --- |\n| a_b | 1.0 ± 0.1 |\n| c, d | −2.0 |\n"
    )


def test_csv_quotes_a_cell_with_a_comma() -> None:
    assert TABLE.csv() == 'name,value\na_b,1.0 ± 0.1\n"c, d",−2.0\n'


def test_latex_writes_its_own_letters_so_that_they_are_printed() -> None:
    assert TABLE.latex() == "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\caption{100 \% of $\alpha$}",
            r"\begin{tabular}{lr}",
            r"\toprule",
            r"name & value \\",
            r"\midrule",
            r"a\_b & 1.0 $\pm$ 0.1 \\",
            r"c, d & $-$2.0 \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def test_a_table_is_written_in_three_files(tmp_path: Path) -> None:
    written = TABLE.write(tmp_path / "a.b")
    assert [path.name for path in written] == ["a.b.md", "a.b.csv", "a.b.tex"]
    texts = [TABLE.markdown(), TABLE.csv(), TABLE.latex()]
    assert [path.read_text() for path in written] == texts


def test_a_table_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match=r"cannot write the table .*nowhere"):
        TABLE.write(tmp_path / "nowhere" / "table")


def test_a_hostile_name_stays_one_cell_of_text() -> None:
    table = Table("", ["class"], [["a|b\nc<script>~^"]])
    assert table.markdown().splitlines()[2] == r"| a\|b c&lt;script>~^ |"
    line = r"a|b c<script>\textasciitilde{}\textasciicircum{} \\"
    assert line in table.latex().splitlines()


def test_smooth_is_the_mean_of_the_last_values_and_of_fewer_at_the_beginning() -> None:
    found = smooth(np.array([1.0, 2.0, 6.0, 4.0, 5.0, 9.0]), 3)
    assert found.tolist() == pytest.approx([1, 1.5, 3, 4, 5, 6])


def test_the_line_is_the_mean_over_seeds_in_per_cent_by_round() -> None:
    runs = [hand_made([0.1, 0.3], [0.2, 0.4]), hand_made([0.2, 0.6], [0.8, 0.8])]
    # the mean of the rounds so far, of both seeds
    expected = [15, 30], [50, 55]
    for axes, heights in zip(curves_figure({"map": runs}).axes, expected, strict=True):
        (line,) = axes.lines
        assert list(np.asarray(line.get_xdata())) == [1, 2]
        assert list(np.asarray(line.get_ydata())) == pytest.approx(heights)


def test_the_band_is_one_deviation_over_seeds_to_both_sides() -> None:
    runs = [hand_made([0.1, 0.3]), hand_made([0.2, 0.6])]
    (band,) = curves_figure({"map": runs}).axes[0].collections
    (path,) = band.get_paths()
    corners = np.asarray(path.vertices)
    heights = {round(float(y), 3) for x, y in corners if x == 2}
    spread = 10 * 2**0.5  # of 20 and 40, the means over two rounds
    assert heights == {round(30 - spread, 3), round(30 + spread, 3)}


def test_with_one_seed_the_thin_line_is_the_round_as_it_is() -> None:
    thin, _ = curves_figure({"map": [hand_made([0.1, 0.3])]}).axes[0].lines
    assert list(np.asarray(thin.get_ydata())) == pytest.approx([10, 30])


def test_of_runs_that_stopped_early_as_many_rounds_are_drawn_as_all_have() -> None:
    runs = [hand_made([0.1, 0.3, 0.5]), hand_made([0.2, 0.6])]
    (line,) = curves_figure({"map": runs}).axes[0].lines
    assert list(np.asarray(line.get_ydata())) == pytest.approx([15, 30])


def test_a_line_that_lies_on_another_one_has_gaps() -> None:
    same, other = [hand_made([0.1, 0.3])], [hand_made([0.2, 0.3])]
    lines = curves_figure({"fedrs": same, "fedavg": other, "map": same}).axes[0].lines[1::2]
    assert [line.get_linestyle() for line in lines] == ["-", "-", "--"]


def test_the_thick_line_is_the_mean_of_five_rounds() -> None:
    run = hand_made([0.1, 0.2, 0.3, 0.4, 0.5, 0.8])
    thin, thick = curves_figure({"map": [run]}).axes[0].lines
    assert thick.get_linewidth() > thin.get_linewidth()
    assert list(np.asarray(thick.get_ydata())) == pytest.approx([10, 15, 20, 25, 30, 44])


def test_a_method_without_a_global_model_is_drawn_on_the_right_alone() -> None:
    results = {"fedrep": [hand_made([None, None])], "map": [hand_made([0.1, 0.2])]}
    left, right = curves_figure(results).axes
    assert [line.get_label() for line in left.lines[1::2]] == ["map"]
    assert [line.get_label() for line in right.lines[1::2]] == ["fedrep", "map"]
    assert left.lines[1].get_color() == right.lines[3].get_color() == COLORS[1]


def test_the_legend_is_where_every_method_is_drawn() -> None:
    def named(results: dict[str, list[Result]]) -> list[list[str]]:
        legends = [axes.get_legend() for axes in curves_figure(results).axes]
        return [[text.get_text() for text in legend.texts] if legend else [] for legend in legends]

    both, personal = [hand_made([0.1])], [hand_made([None])]
    assert named({"map": both, "fedavg": both}) == [["map", "fedavg"], []]
    assert named({"map": both, "fedrep": personal}) == [[], ["map", "fedrep"]]
    assert named({"map": []}) == [[], []]


def test_a_method_without_a_finished_run_is_not_drawn() -> None:
    left, right = curves_figure({"fedavg": [], "map": [hand_made([0.1])]}).axes
    assert len(left.lines) == len(right.lines) == 2


def test_more_methods_than_colors_differ_in_their_dashes() -> None:
    results = {f"method {k}": [hand_made([k / 20])] for k in range(len(COLORS) + 1)}
    lines = curves_figure(results).axes[0].lines[1::2]
    looks = {(line.get_color(), line.get_linestyle()) for line in lines}
    assert len(looks) == len(results)


def test_the_curves_are_saved_where_asked(tmp_path: Path) -> None:
    path = curves({"map": [hand_made([0.1, 0.2])]}, tmp_path / "new/curves.svg")
    assert path.read_text().startswith("<?xml")


def test_a_picture_is_saved_below_new_folders_and_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "deep" / "picture.svg"
    for _ in range(2):
        assert save(Figure(), path) == path
    assert path.exists()


def test_a_picture_in_a_file_instead_of_a_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FedmapError, match=r"cannot write the picture .*picture\.svg"):
        save(Figure(), tmp_path / "file" / "picture.svg")


def test_more_than_six_methods_are_named_in_two_columns() -> None:
    def columns(methods: int) -> int:
        results = {f"method {k}": [hand_made([0.1])] for k in range(methods)}
        figure = curves_figure(results)
        figure.draw_without_rendering()
        legend: Any = figure.axes[0].get_legend()
        left_ends = {round(text.get_window_extent().x0) for text in legend.texts}
        return len(left_ends)

    assert (columns(6), columns(7)) == (1, 2)


def test_an_unknown_kind_of_picture_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match=r"cannot write the picture .*\.xyz"):
        save(Figure(), tmp_path / "picture.xyz")


def three_clients() -> Federation:
    """Who holds what is set by hand: (clients, classes)."""
    federation = partition(synthetic(classes=4, train=240, test=80, shape=(6,)), 3, kind="iid")
    federation.counts[:] = 0
    federation.counts[0, 1], federation.counts[0, 3], federation.counts[2, 0] = 10, 40, 20
    return federation


def test_a_dot_stands_at_each_class_that_a_client_holds_and_grows_with_its_samples() -> None:
    (axes,) = holdings_figure(three_clients()).axes
    (dots,) = axes.collections
    assert isinstance(dots, PathCollection)
    assert np.asarray(dots.get_offsets()).tolist() == [[0, 1], [0, 3], [2, 0]]
    assert dots.get_sizes().tolist() == pytest.approx([65, 260, 130])  # of 10, 40 and 20 samples
    assert axes.get_title(loc="left") == (
        "Who holds what: a client misses 3.0 of 4 classes on average; "
        "the largest dot is 40 training samples"
    )


def test_many_clients_are_drawn_as_a_raster_with_holes_where_nothing_is_held() -> None:
    federation = partition(synthetic(classes=4, train=800, test=80, shape=(6,)), 61, seed=0)
    federation.counts[0, 0], federation.counts[0, 1] = 0, 1
    axes, scale = holdings_figure(federation).axes
    (image,) = axes.images
    drawn: np.ndarray = np.ma.filled(np.ma.asarray(image.get_array()), np.nan).T
    counts = federation.counts.numpy()
    assert (np.isnan(drawn) == (counts == 0)).all()
    assert (np.nan_to_num(drawn) == counts).all()
    assert scale.get_ylabel() == "training samples"
    assert "the largest dot" not in axes.get_title(loc="left")


@pytest.mark.parametrize(
    ("clients", "classes", "raster", "named"),
    [(60, 4, False, True), (61, 4, True, True), (5, 30, False, True), (5, 31, True, False)],
)
def test_at_most_sixty_clients_and_thirty_classes_are_dots_with_names(
    clients: int, classes: int, raster: bool, named: bool
) -> None:
    data = synthetic(classes=classes, train=60 * classes, test=2 * classes, shape=(6,))
    axes = holdings_figure(partition(data, clients, kind="iid")).axes[0]
    assert bool(axes.images) == raster
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert (names == list(data.classes)) == named


NAMES = ("FedAvg", "map[preset=own,opinion=1]", "fedntd[preset=fedlmd]", "Ditto", "MAP", "pFedMe")


@pytest.mark.parametrize("wide", [1, 3, 9])  # all of them in one place, and further apart
def test_names_of_points_cover_no_other_name_or_point(wide: int) -> None:
    where = np.random.default_rng(0).integers(0, wide, (6, 2)).tolist()
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-10, 20), ylim=(-10, 40))
    points = {name: (x, y) for name, (x, y) in zip(NAMES, where, strict=True)}
    name_points(axes, points, ["MAP"])
    figure.draw_without_rendering()
    labels: list[Any] = list(axes.texts)
    assert {label.get_text(): label.xy for label in labels} == points
    boxes = [Text.get_window_extent(label) for label in labels]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert not any(box.contains(*axes.transData.transform(p)) for box in boxes for p in where)
    assert [label.get_text() for label in labels if label.get_fontweight() == "bold"] == ["MAP"]


def test_a_name_is_beside_its_point_where_there_is_room() -> None:
    axes = Figure(figsize=(9, 6)).subplots()
    axes.set(xlim=(0, 10), ylim=(0, 10))
    name_points(axes, {"FedAvg": (2, 2), "Ditto": (2, 8), "MAP": (2, 8), "FedRS": (2, 8)})
    labels: list[Any] = list(axes.texts)
    heights = {label.get_text(): label.xyann[1] for label in labels}
    assert heights["FedAvg"] == 0
    assert sorted(heights.values())[-1] > 0
    moved = {label.get_text() for label in labels if label.arrow_patch is not None}
    assert moved == {name for name, height in heights.items() if height}
