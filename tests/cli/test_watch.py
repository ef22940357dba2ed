"""`fedmap watch`: what it shows, when it ends, and that nothing is cut on a narrow terminal."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import fedmap as library
from fedmap.cli import watch as watching
from fedmap.cli.watch import BLOCKS, lines, picture, spark, watch
from fedmap.simulate.folder import Record, RunFolder
from fedmap.simulate.look import Look

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 4, "epochs": 0.2}


def terminal(width: int = 60) -> tuple[Console, io.StringIO]:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=width, color_system=None)
    return console, screen


def never(seconds: float) -> None:
    pytest.fail("it waits")


@pytest.fixture
def stopped(federation: library.Federation, tmp_path: Path) -> Path:
    def stop(record: Record) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        library.run("fedavg", federation, out=tmp_path / "run", on_round=stop, **SMALL)
    return tmp_path / "run"


def test_a_curve_goes_from_the_lowest_to_the_highest_block() -> None:
    assert spark([0.0, 0.5, 1.0], 10) == BLOCKS[0] + BLOCKS[4] + BLOCKS[7]
    assert spark([0.3, 0.3], 10) == BLOCKS[0] * 2
    assert spark([], 10) == ""


def test_a_long_curve_has_the_means_of_its_parts() -> None:
    assert spark([0.0, 0.2, 0.8, 1.0], 2) == BLOCKS[0] + BLOCKS[7]
    assert len(spark([k / 999 for k in range(1000)], 37)) == 37


def test_a_run_has_rounds_both_accuracies_and_its_best_round(stopped: Path) -> None:
    found = lines(Look(stopped), 60)
    last = Look(stopped).records[-1]
    assert found[0] == "fedavg  stopped  round 3/4"
    assert found[1].startswith(f"  global   {100 * last['global_accuracy']:4.1f}% ")
    assert found[2].startswith(f"  personal {100 * last['personal_accuracy']:4.1f}% ")
    assert found[3].startswith("  best round so far: ")
    assert found[-1] == f"  stopped; go on with: fedmap resume {stopped}"


def test_a_run_that_goes_on_has_its_time_left_and_bad_uploads(stopped: Path) -> None:
    with RunFolder(stopped).locked():
        look = Look(stopped)
    look.records = [r | {"seconds": 50.0, "left_out": [{}]} for r in look.records]
    found = lines(look, 60)
    assert found[0] == "fedavg  running  round 3/4  50 s left"
    assert "  bad uploads left out: 3" in found


def test_it_ends_with_a_stopped_run_and_says_how_to_go_on(stopped: Path) -> None:
    console, screen = terminal(200)
    assert watch(stopped, console=console, sleep=never) == 1
    assert f"fedmap resume {stopped}" in screen.getvalue()


def test_it_waits_for_a_run_and_ends_when_that_is_done(
    federation: library.Federation, tmp_path: Path
) -> None:
    console, screen = terminal()
    naps: list[float] = []

    def meanwhile(seconds: float) -> None:
        naps.append(seconds)
        library.run("fedavg", federation, out=tmp_path / "run", **SMALL)

    assert watch(tmp_path / "run", console=console, sleep=meanwhile) == 0
    assert len(naps) == 1
    shown = screen.getvalue()
    assert "waiting to begin" in shown
    assert "fedavg  done  round 4/4" in shown


def test_ctrl_c_ends_the_watching_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(seconds: float) -> None:
        raise KeyboardInterrupt

    assert watch(tmp_path / "run", console=terminal()[0], sleep=stop) == 130
    assert "what was going on goes on" in capsys.readouterr().err


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    methods = ["fedavg", "map[alpha=0.25,weight=0.0625]"]
    given: dict[str, Any] = {"data": "synthetic", "clients": 4} | SMALL
    library.compare(methods, out=folder, seeds=(0, 1), **given)
    return folder


def test_of_a_comparison_each_run_is_shown_by_its_label(compared: Path) -> None:
    console, screen = terminal(200)
    assert watch(compared, console=console, sleep=never) == 0
    shown = screen.getvalue()
    assert "4 runs: 4 done" in shown
    assert "map[alpha=0.25,weight=0.0625] #1  done  global" in shown


def test_runs_that_were_finished_before_are_done_in_a_longer_comparison(tmp_path: Path) -> None:
    given: dict[str, Any] = {"data": "synthetic", "clients": 4, "out": tmp_path} | SMALL
    for seeds in ((0,), (0, 1)):
        library.compare(["fedavg"], seeds=seeds, **given)
    console, screen = terminal(200)
    assert watch(tmp_path, console=console, sleep=never) == 0
    assert "2 runs: 2 done" in screen.getvalue()


def test_nothing_is_cut_at_60_columns(compared: Path) -> None:
    console, screen = terminal(60)
    watch(compared, console=console, sleep=never)
    shown = screen.getvalue()
    whole = "".join(shown.split("\n"))
    assert "…" not in shown
    for line in picture(watching.looks(compared), 60):
        assert line in whole.replace("\r", "")


def test_an_experiment_without_a_living_run_counts_as_stopped_after_a_while(
    compared: Path, tmp_path: Path
) -> None:
    text = (compared / "experiment.json").read_text()
    first = next(compared.glob("*/run.toml")).parent
    (tmp_path / first.name).mkdir()
    (tmp_path / first.name / "run.toml").write_text((first / "run.toml").read_text())
    (tmp_path / "experiment.json").write_text(text)
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    console, screen = terminal(200)
    assert watch(tmp_path, console=console, sleep=wait, clock=lambda: now[0]) == 1
    assert now[0] == pytest.approx(watching.PATIENCE, abs=2)
    assert "stopped; go on with the command that began it" in screen.getvalue()


def test_the_command_looks_once_where_that_is_asked_for(
    fedmap: Callable[[str], Any], stopped: Path
) -> None:
    done = fedmap(f"watch {stopped} --once")
    assert done.returncode == 1
    assert done.stdout.startswith("fedavg  stopped  round 3/4\n")
    done = fedmap("watch nowhere --once")
    assert done.returncode == 1
    assert done.stderr.endswith("there is no folder nowhere\n")
