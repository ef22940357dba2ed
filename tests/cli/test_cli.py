"""The command line as a person uses it: what it prints, where, and with which exit code."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fedmap.cli.main import main
from fedmap.data import DATASETS
from fedmap.methods import METHODS
from fedmap.partitions import PARTITIONS

COMMAND = [sys.executable, "-c", "from fedmap.cli.main import main; main()"]
SMALL = [
    "--data",
    "synthetic",
    "--net",
    "mlp",
    "--clients",
    "4",
    "--rounds",
    "2",
    "--epochs",
    "0.5",
    "--workers",
    "1",
]


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def fedmap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The command as the shell calls it, in a folder of its own, without starting Python anew each
    time."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["fedmap", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return call


Fedmap = Callable[..., Done]


def test_run_shows_progress_on_standard_error_and_the_table_on_standard_output(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    done = fedmap("run", "--method", "map", *SMALL, "--out", "here", "-p", "alpha=0.5")
    assert done.returncode == 0
    assert "map  round 2/2  global" in done.stderr
    assert "| map |" in done.stdout
    assert "run folder: here" in done.stdout
    assert "alpha = 0.5" in (tmp_path / "here/run.toml").read_text()


def test_a_run_is_repeated_from_its_own_toml_and_options_win(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    assert (
        fedmap(
            "run", "--method", "fedrs", *SMALL, "--out", "first", "-p", "alpha=0.3", "--quiet"
        ).returncode
        == 0
    )
    again = fedmap("run", "first/run.toml", "--rounds", "1", "--out", "second", "--json")
    assert again.returncode == 0
    assert again.stderr == ""
    (entry,) = json.loads(again.stdout)
    assert (entry["method"], entry["folder"]) == ("fedrs", "second")
    first, second = ((tmp_path / name / "run.toml").read_text() for name in ("first", "second"))
    assert first.replace("rounds = 2", "rounds = 1") == second


def test_another_method_does_not_inherit_the_parameters_of_the_file(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        'method = "map"\ndata = "synthetic"\nnet = "mlp"\nclients = 4\nrounds = 1\n[params]\nalpha = 0.3\n'
    )
    done = fedmap("run", "mine.toml", "--method", "fedavg", "--out", "out", "--quiet")
    assert done.returncode == 0, done.stderr


def test_compare_makes_a_table_and_pictures_and_skips_what_is_done(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    command = ["compare", "--methods", "fedavg,map", "--seeds", "0,1", *SMALL, "--out", "out"]
    first = fedmap(*command)
    assert first.returncode == 0, first.stderr
    assert "| fedavg |" in first.stdout
    assert " ± " in first.stdout
    assert (tmp_path / "out/curves.png").stat().st_size > 10_000
    assert (tmp_path / "out/partition.png").stat().st_size > 5_000
    second = fedmap(*command)
    assert "round" not in second.stderr
    assert second.stdout == first.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "--method", "fedavgg"], "there is no method 'fedavgg'; did you mean 'fedavg'?"),
        (["run", "--net", "lenett"], "there is no net 'lenett'; did you mean 'lenet'?"),
        (
            ["run", "--data", "fashionmini"],
            "there is no dataset 'fashionmini'; did you mean 'fashion-mini'?",
        ),
        (
            ["run", "--partition", "incompleet"],
            "there is no partition 'incompleet'; did you mean 'incomplete'?",
        ),
        (["run", "-p", "alhpa=1"], "method map has no parameter 'alhpa'; did you mean 'alpha'?"),
        (["run", "-p", "alpha=2"], "method map: alpha is 2; allowed: number from 0 up to 1"),
        (["run", "-p", "alpha"], "-p 'alpha' is not of the form NAME=VALUE"),
        (["run", "--fraction", "1.5"], "fraction is 1.5; allowed: number above 0 up to 1"),
        (["run", "--rounds", "0"], "rounds is 0; allowed: whole number from 1"),
        (["run", "--lr", "nan"], "lr is nan"),
        (["run", "--clients", "9000"], "10000 training samples cannot give 9000 clients two each"),
        (["run", "--partition-param", "size_sigma=-1"], "partition incomplete: size_sigma is -1"),
        (["run", "missing.toml"], "there is no file missing.toml"),
        (["run", "broken.toml"], "broken.toml is not a TOML file"),
        (["resume", "nowhere"], "nowhere is not a run folder: it has no run.toml"),
        (["compare", "--seeds", "a"], "--seeds 'a' is not a list of whole numbers"),
        (["compare", "--methods", ","], "--methods is empty"),
        (
            ["partition", "--data", "synthetic", "--plot", "picture.xyz"],
            "cannot write the picture picture.xyz",
        ),
    ],
)
def test_nonsense_gets_one_sentence_and_exit_code_one(
    arguments: list[str], sentence: str, fedmap: Fedmap, tmp_path: Path
) -> None:
    (tmp_path / "broken.toml").write_text("rounds = = 3")
    done = fedmap(*arguments)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stderr.startswith("fedmap: ")
    assert "Traceback" not in done.stderr


def test_control_c_keeps_whole_rounds_and_says_how_to_go_on(tmp_path: Path) -> None:
    arguments = [
        "run",
        "--data",
        "synthetic",
        "--net",
        "mlp",
        "--clients",
        "4",
        "--rounds",
        "2000",
        "--workers",
        "2",
        "--out",
        "out",
    ]
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        rounds = tmp_path / "out/rounds.jsonl"
        give_up = time.monotonic() + 60
        while not (rounds.exists() and rounds.read_text().count("\n") >= 2):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "stopped; whole rounds are kept in out. Go on with: fedmap resume out" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("what", ["methods", "nets", "datasets", "partitions"])
def test_lists_name_everything_with_a_line_of_what_it_is(what: str, fedmap: Fedmap) -> None:
    done = fedmap(what)
    assert done.returncode == 0, done.stderr
    known = {
        "methods": METHODS,
        "nets": ["mlp", "lenet"],
        "datasets": DATASETS,
        "partitions": PARTITIONS,
    }[what]
    for name in known:
        assert name in done.stdout


def test_a_method_is_shown_with_its_parameters_presets_and_groups(fedmap: Fedmap) -> None:
    done = fedmap("methods", "map")
    for word in ("alpha", "0 up to 1", "preset=released", "the paper tries"):
        assert word in done.stdout


def test_help_does_not_wait_for_torch() -> None:
    script = "import sys; from fedmap.cli import main; assert 'torch' not in sys.modules and 'pydantic' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_partition_gives_its_statistics_as_json(fedmap: Fedmap, tmp_path: Path) -> None:
    done = fedmap("partition", "--clients", "30", "--json", "--plot", "who.png")
    found = json.loads(done.stdout)
    assert found["clients"] == 30
    assert found["observed_classes_per_client"]["least"] >= 2
    assert (tmp_path / "who.png").exists()
