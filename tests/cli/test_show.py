"""What a person sees: the progress on and off a terminal, tables and statistics."""

import io
import json

import pytest
from rich.console import Console

from fedmap.cli import show
from fedmap.cli.show import Display, duration
from fedmap.experiment.progress import Progress
from fedmap.report.table import Row

ROWS = [Row("map", ["80.0 ± 0.1", "81.0 ± 0.1", "90.0 ± 0.1", "91.0 ± 0.1"], "0.12")]


def progress(step: int, steps: int = 2, label: str = "map", pieces: int = 1) -> Progress:
    share = step / steps / pieces
    return Progress(label, step, steps, "global 50.0%", pieces, share, 100.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")],
)
def test_durations_are_said_as_a_person_says_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_without_a_terminal_a_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(quiet=False).shown() as display:
        display(progress(1))
    assert capsys.readouterr().err == "map  1/2  global 50.0%  2 min left\n"


def test_long_work_has_about_twenty_lines_and_always_the_last(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Display(quiet=False).shown() as display:
        for step in range(1, 206):
            display(progress(step, 205))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 21
    assert lines[0].startswith("map  10/205 ")
    assert lines[-1].startswith("map  205/205 ")


def test_of_many_pieces_of_work_each_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(quiet=False).shown() as display:
        for label in ("fedavg", "map"):
            for step in range(1, 41):
                display(progress(step, 40, label, pieces=30))
    lines = [line.partition("  ")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["fedavg", "map"]


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Display(quiet=True).shown() as display:
        display(progress(2))
    assert capsys.readouterr() == ("", "")


def on_a_terminal(*steps: Progress) -> str:
    """What is on the screen at the end."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Display(False, console).shown() as display:
        for step in steps:
            display(step)
    return screen.getvalue().rpartition("\x1b[2K")[2] or screen.getvalue()


def test_a_run_alone_has_one_bar_with_the_time_left() -> None:
    shown = on_a_terminal(progress(1), progress(2))
    assert "2/2  global 50.0%  2 min left" in shown
    assert "all together" not in shown


def test_a_run_that_ends_early_has_a_full_bar() -> None:
    shown = on_a_terminal(progress(1, 50), progress(7, 50), progress(7, 7))
    bar = next(line for line in shown.splitlines() if "7/7" in line)
    assert bar.count("━") == 20
    assert "╸" not in bar


def test_many_runs_have_a_bar_each_and_one_for_all_together() -> None:
    steps = [progress(2, label=label, pieces=2) for label in ("fedavg", "map")]
    shown = on_a_terminal(*steps)
    assert "2 min left" in shown
    for label in ("all together", "fedavg", "map"):
        assert label in shown


def test_a_variant_is_shown_with_its_brackets() -> None:
    assert "map[alpha=0.5]" in on_a_terminal(progress(1, label="map[alpha=0.5]"))


def test_a_drawn_table_shows_a_variant_with_its_brackets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    show.results([ROWS[0]._replace(method="map[alpha=0.5]")], [], as_json=False)
    assert "map[alpha=0.5]" in capsys.readouterr().out


def test_of_very_many_runs_the_latest_are_on_the_screen() -> None:
    steps = [progress(2, label=f"run {k:02d}", pieces=20) for k in range(20)]
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, color_system=None)
    with Display(False, console).shown() as display:
        for step in steps:
            display(step)
        assert display.bars
        visible = [task.description for task in display.bars.tasks if task.visible]
    assert visible == ["all together", *(f"run {k:02d}" for k in range(12, 20))]


def test_results_are_markdown_where_they_are_piped(capsys: pytest.CaptureFixture[str]) -> None:
    show.results(ROWS, [], as_json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "| map | 80.0 ± 0.1 | 81.0 ± 0.1 | 90.0 ± 0.1 | 91.0 ± 0.1 | 0.12 |"


def test_results_are_a_drawn_table_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    show.results(ROWS, [], as_json=False)
    shown = capsys.readouterr().out
    assert "Accuracy in %" in shown
    assert all(cell in shown for cell in [*ROWS[0].cells, "map", "0.12", "s/round"])


def test_the_widest_table_of_a_comparison_fits_into_100_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    row = ROWS[0]._replace(method="perfedavg", gain="+12.3", losers="123 of 300")
    show.results([row], [], as_json=False)
    shown = capsys.readouterr().out
    assert all(cell in shown for cell in [*row.cells, row.method, row.gain, row.losers])


def test_results_are_json_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    show.results(ROWS, [{"method": "map", "global_accuracy": None}], as_json=True)
    assert json.loads(capsys.readouterr().out) == [{"method": "map", "global_accuracy": None}]


def test_statistics_are_lines_with_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    show.statistics("title", {"clients": 4, "in_all": {"mean": 2.5, "most": 3}}, as_json=False)
    assert capsys.readouterr().out == "title\n  clients: 4\n  in all: mean 2.5, most 3\n"


def test_at_60_columns_the_progress_is_not_cut() -> None:
    label = "map[alpha=0.25,weight=0.0625,transfer=mmd,preset=printed] #12"
    now = "global 81.0%  personal 88.1%"
    step = Progress(label, 12, 150, now, 30, 0.4, 5000.0)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, color_system=None)
    with Display(False, console).shown() as display:
        display(step)
    shown = screen.getvalue().rpartition("\x1b[2K")[2] or screen.getvalue()
    joined = "".join(shown.split())  # a line may end at any space
    assert "…" not in shown
    for part in (label, f"12/150  {now}", "40%  83 min left"):
        assert part.replace(" ", "") in joined


def test_a_table_that_is_too_wide_is_shown_line_by_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    row = ROWS[0]._replace(method="map[alpha=0.25]", gain="+12.3", losers="123 of 300")
    show.results([row], [], as_json=False)
    shown = capsys.readouterr().out
    assert "…" not in shown
    for cell in ("global: 80.0 ± 0.1", "gain over local: +12.3", "clients that lose: 123 of 300"):
        assert f"  {cell}\n" in shown
    assert "map[alpha=0.25]" in shown
