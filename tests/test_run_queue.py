"""The queue that makes results/: what it gathers, and that every command of it can be run."""

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from fedmap.cli import studies
from fedmap.cli.main import app
from fedmap.experiment import leaderboard as boards
from fedmap.experiment.leaderboard import BOARDS
from fedmap.paper import STUDIES
from fedmap.paper.study import from_csv, to_csv

ROOT = Path(__file__).parent.parent
COMMANDS = tomllib.loads((ROOT / "results/queue.toml").read_text())["commands"]
sys.path.append(str(ROOT / "scripts"))
import run_queue  # noqa: E402


def row(method: str, seed: int, accuracy: float, round: int = 1) -> dict[str, object]:
    return {"method": method, "seed": seed, "round": round, "accuracy": accuracy}


def test_rows_of_the_same_work_are_replaced_in_their_place() -> None:
    old = [row("map", 0, 1.0), row("map", 0, 2.0, round=2), row("map", 1, 3.0)]
    new = [row("map", 0, 4.0), row("fedavg", 0, 5.0)]
    assert run_queue.merged(old, new) == [new[0], old[2], new[1]]


def test_rows_of_an_older_kind_go() -> None:
    assert run_queue.merged([{"method": "map"}], [row("fedavg", 0, 1.0)]) == [row("fedavg", 0, 1.0)]


def test_gathered_rows_are_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "study-small.csv"
    run_queue.gather(path, [row("map", 0, 1.0)])
    run_queue.gather(path, [row("map", 1, 2.0)])
    assert path.read_text() == to_csv([row("map", 0, 1.0), row("map", 1, 2.0)])


def test_what_is_done_is_gathered_without_a_run(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    words = "study joint --scale smoke --methods fedavg --clip 3"
    places = ["--workers", "1", "--runs", str(runs), "--out", str(out), "--quiet"]
    assert CliRunner().invoke(app, [*words.split(), *places]).exit_code == 0
    results = tmp_path / "results"
    results.mkdir()
    assert run_queue.run(f"fedmap {words}", runs, results, report=True)
    assert not run_queue.run(f"fedmap {words} --seeds 7", runs, results, report=True)
    (found,) = from_csv(results / "joint-smoke.csv")
    assert (found["method"], found["clip"], found["outcome"]) == ("fedavg", 3.0, "done")


@pytest.mark.parametrize("code", [0, 1])
def test_rows_are_gathered_while_a_study_goes_on(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, times = tmp_path / "go on", []
    wait = f"import pathlib, sys\nwhile not pathlib.Path({str(mark)!r}).exists(): pass\n"
    line = [sys.executable, "-c", f"{wait}sys.exit({code})"]

    def gathered(words: list[str], runs: Path, results: Path) -> bool:
        times.append(words[1])
        if len(times) == 2:
            mark.touch()
        return True

    monkeypatch.setattr(run_queue, "WHILE", 0.05)
    monkeypatch.setattr(run_queue, "started", lambda *words: subprocess.Popen(line))
    monkeypatch.setattr(run_queue, "gathered", gathered)
    ended_well = run_queue.run("fedmap study joint --scale smoke", tmp_path, tmp_path, report=False)
    assert ended_well == (code == 0)
    assert len(times) >= 3  # twice while it ran, and once more


def test_the_queue_trains_every_contender_of_every_large_board() -> None:
    asked: dict[str, set[str]] = {}
    for words in (shlex.split(c) for c in COMMANDS if c.startswith("fedmap leaderboard")):
        board = words[words.index("--board") + 1]
        asked.setdefault(board, set()).update(run_queue.trained_by(words, board))
    wanted = {name: set(boards.contenders(name)) for name in BOARDS if name != boards.FIRST}
    assert asked == wanted


def test_methods_that_a_board_has_are_not_trained_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ["fedavg", "local", "map"]
    monkeypatch.setattr(boards, "kept", lambda board: [SimpleNamespace(method=m) for m in there])
    tried: list[tuple[str, ...]] = []

    def fail(*words: str) -> bool:
        tried.append(words)
        return False

    monkeypatch.setattr(run_queue, "fedmap", fail)
    command = "fedmap leaderboard --board cifar-10 --method map"
    assert run_queue.run(command, Path("runs"), Path("results"), report=False)
    assert not tried
    assert not run_queue.run(f"{command} --method moon", Path("runs"), Path(), report=False)
    assert [words[-3:] for words in tried] == [("moon", "--out", "runs")]


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("fedmap study")])
def test_every_study_of_the_queue_is_one(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    monkeypatch.setattr(studies, "study", lambda *given: chosen.append(given))
    called = CliRunner().invoke(app, shlex.split(command)[1:])
    assert called.exit_code == 0, called.output
    ((name, scale, choice, *_),) = chosen
    assert STUDIES[name].work(STUDIES[name].choice(scale, **choice))
