"""The command line as a person uses it: what it prints, where, and with which exit code."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fedmap.data import DATASETS, load, synthetic
from fedmap.federation import partition
from fedmap.methods import METHODS
from fedmap.partitions import PARTITIONS

Fedmap = Callable[[str], Any]  # the fixture in conftest.py
SMALL = "--data synthetic --net mlp --clients 4 --rounds 2 --epochs 0.5 --workers 1"


def test_run_shows_progress_on_standard_error_and_the_table_on_standard_output(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    done = fedmap(f"run --method map {SMALL} --out here -p alpha=0.5")
    assert done.returncode == 0
    assert re.search(r"^map  2/2  global .*%  personal .*%  0 s left$", done.stderr, re.MULTILINE)
    assert "| map |" in done.stdout
    assert "run folder: here" in done.stdout
    assert "alpha = 0.5" in (tmp_path / "here/run.toml").read_text()


def test_a_run_is_repeated_from_its_own_toml_and_options_win(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    first = fedmap(f"run {SMALL} --method fedrs -p alpha=0.3 --out first --quiet")
    assert first.returncode == 0, first.stderr
    again = fedmap("run first/run.toml --rounds 1 --out second --json")
    assert again.returncode == 0
    assert again.stderr == ""
    (entry,) = json.loads(again.stdout)
    assert (entry["method"], entry["folder"]) == ("fedrs", "second")
    before, after = ((tmp_path / name / "run.toml").read_text() for name in ("first", "second"))
    assert before.replace("rounds = 2", "rounds = 1") == after


def test_another_method_does_not_inherit_the_parameters_of_the_file(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    (tmp_path / "mine.toml").write_text(
        'method = "map"\ndata = "synthetic"\nnet = "mlp"\nclients = 4\nrounds = 1\n'
        "[params]\nalpha = 0.3\n"
    )
    done = fedmap("run mine.toml --method fedavg --out out --quiet")
    assert done.returncode == 0, done.stderr


def test_compare_makes_a_table_and_pictures_and_skips_what_is_done(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    command = f"compare --methods fedavg,map --seeds 0,1 {SMALL} --out out"
    first = fedmap(command)
    assert first.returncode == 0, first.stderr
    assert "| fedavg |" in first.stdout
    assert " ± " in first.stdout
    assert (tmp_path / "out/curves.png").stat().st_size > 10_000
    assert (tmp_path / "out/partition.png").stat().st_size > 5_000
    second = fedmap(command)
    labels = ("fedavg #0", "map #0", "fedavg #1", "map #1")
    lines = [f"{label}  2/2  finished before  0 s left" for label in labels]
    assert second.stderr.splitlines() == lines  # and nothing was trained
    assert second.stdout == first.stdout


def test_sweep_makes_a_table_of_every_combination(fedmap: Fedmap, tmp_path: Path) -> None:
    done = fedmap(f"sweep {SMALL} -g alpha=0.1,0.5 --seeds 0,1 --out out -p weight=0.2")
    assert done.returncode == 0, done.stderr
    assert "| map[alpha=0.1] |" in done.stdout
    assert "| map[alpha=0.5] |" in done.stdout
    assert len(list(tmp_path.glob("out/map-*"))) == 4
    assert "weight = 0.2" in next(tmp_path.glob("out/map-*/run.toml")).read_text()


def test_a_run_that_diverges_does_not_end_a_comparison(fedmap: Fedmap) -> None:
    done = fedmap(f"compare {SMALL} --methods fedavg,fedrep --lr 1e8 --out out")
    assert done.returncode == 0, done.stderr
    assert "fedavg  2/2  diverged" in done.stderr
    assert "| fedavg (1 of 1 diverged) | - |" in done.stdout
    assert "| fedrep (1 of 1 diverged) | - |" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("run --method fedavgg", "there is no method 'fedavgg'; did you mean 'fedavg'?"),
        ("run --net lenett", "there is no net 'lenett'; did you mean 'lenet'?"),
        (
            "run --data fashionmini",
            "there is no dataset 'fashionmini'; did you mean 'fashion-mini'?",
        ),
        (
            "run --partition incompleet",
            "there is no partition 'incompleet'; did you mean 'incomplete'?",
        ),
        ("run -p alhpa=1", "method map has no parameter 'alhpa'; did you mean 'alpha'?"),
        ("run -p alpha=2", "method map: alpha is 2; allowed: number from 0 up to 1"),
        ("run -p alpha", "-p 'alpha' is not of the form NAME=VALUE"),
        ("run --fraction 1.5", "fraction is 1.5; allowed: number above 0 up to 1"),
        ("run --rounds 0", "rounds is 0; allowed: whole number from 1"),
        ("run --lr nan", "lr is nan"),
        ("run --epochs 1e30", "epochs is 1e+30; allowed: number above 0 up to 1e+06"),
        ("run --dp-clip inf", "dp_clip is inf; allowed: value above 0 up to 1e+09"),
        ("run --dp-clip 1 --dp-noise 1e30", "dp_noise is 1e+30; allowed: value above 0"),
        ("run --data=", "there is no dataset ''"),
        ("run --net=", "there is no net ''"),
        (f"run --clients {10**23}", f"10000 training samples cannot give {10**23} clients two"),
        (f"run --out {'long' * 99}", "long/run.toml: File name too long"),
        (f"run --net {'long' * 99}.py:Net", "long.py: File name too long"),
        ("run --clients 9000", "10000 training samples cannot give 9000 clients two each"),
        ("run --partition-param size_sigma=-1", "partition incomplete: size_sigma is -1"),
        ("run missing.toml", "there is no file missing.toml"),
        ("run broken.toml", "broken.toml is not a TOML file"),
        ("resume nowhere", "nowhere is not a run folder: it has no run.toml"),
        ("compare --seeds a", "--seeds 'a' is not a list of whole numbers"),
        ("compare --seeds 0-99999999999", "--seeds '0-99999999999' are too many; at most 10000"),
        ("compare --methods ,", "--methods is empty"),
        ("compare --methods map,mapp", "there is no method 'mapp'; did you mean 'map'?"),
        ("sweep -g alpha", "-g 'alpha' is not of the form NAME=VALUE"),
        ("sweep -g alpha=", "-g alpha is empty"),
        ("sweep -g alhpa=1", "method map has no parameter 'alhpa'; did you mean 'alpha'?"),
        ("sweep", "the grid is empty; give at least one parameter with its values"),
        ("study tabel-3", "there is no study 'tabel-3'; did you mean 'table-3'?"),
        ("study joint --columns ;", "--columns is empty"),
        ("partition --data synthetic --plot a.xyz", "cannot write the picture a.xyz"),
    ],
)
def test_nonsense_gets_one_sentence_and_exit_code_one(
    arguments: str, sentence: str, fedmap: Fedmap, tmp_path: Path
) -> None:
    (tmp_path / "broken.toml").write_text("rounds = = 3")
    done = fedmap(arguments)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stderr.startswith("fedmap: ")
    assert "Traceback" not in done.stderr


# A test runner may be started with Ctrl-C ignored, as by nohup, and a child inherits that.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from fedmap.cli.main import main
main()
"""


def test_control_c_keeps_whole_rounds_and_says_how_to_go_on(tmp_path: Path) -> None:
    arguments = "run --data synthetic --net mlp --clients 4 --rounds 2000 --workers 2 --out out"
    with subprocess.Popen(
        [sys.executable, "-c", LISTENING, *arguments.split()],
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
    known: dict[str, Iterable[str]] = {
        "methods": METHODS,
        "nets": ["mlp", "lenet"],
        "datasets": DATASETS,
        "partitions": PARTITIONS,
    }
    for name in known[what]:
        assert name in done.stdout


def test_a_method_is_shown_with_its_parameters_presets_and_groups(fedmap: Fedmap) -> None:
    done = fedmap("methods map")
    for word in ("alpha", "0 up to 1", "preset=released", "the paper tries"):
        assert word in done.stdout


def test_help_shows_what_stands_in_brackets(fedmap: Fedmap) -> None:
    assert "map[alpha=0.5]" in fedmap("study --help").stdout
    assert "table [grid]" in fedmap("sweep --help").stdout


def test_help_does_not_wait_for_torch() -> None:
    script = "import sys; from fedmap.cli import main; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert not {"torch", "pydantic", "matplotlib"} & set(found.stdout.decode().split())


def test_partition_gives_its_statistics_as_json(fedmap: Fedmap, tmp_path: Path) -> None:
    done = fedmap("partition --clients 30 --json --plot who.png")
    drawn = partition(load("fashion-mini"), 30)
    assert json.loads(done.stdout) == drawn.summary()
    assert done.stderr == "picture: who.png\n"
    assert (tmp_path / "who.png").exists()


def test_the_statistics_of_a_partition_are_those_of_its_clients() -> None:
    federation = partition(synthetic(classes=4, train=240, test=80, shape=(6,)), 6, seed=1)
    held = [Counter(federation.dataset.train_y[samples].tolist()) for samples in federation.train]
    samples, classes = [c.total() for c in held], [len(c) for c in held]
    holders = [sum(label in c for c in held) for label in range(4)]
    assert federation.summary() == {
        "clients": 6,
        "training_samples_per_client": {
            "mean": pytest.approx(sum(samples) / 6),
            "least": min(samples),
            "most": max(samples),
        },
        "observed_classes_per_client": {
            "mean": pytest.approx(sum(classes) / 6),
            "least": min(classes),
            "most": max(classes),
        },
        "clients_per_class": {"least": min(holders), "most": max(holders)},
        "global_test_samples": 80,
    }


def test_a_partition_by_a_table_has_the_tables_clients(fedmap: Fedmap, tmp_path: Path) -> None:
    rows = "".join(f"{number % 3},{number}\n" for number in range(10))
    (tmp_path / "classes.csv").write_text(f"client,class\n{rows}")
    by_table = "--data synthetic --partition classes --partition-param file=classes.csv"
    assert "\n  clients: 3\n" in fedmap(f"partition {by_table}").stdout
    refused = fedmap(f"partition {by_table} --clients 4")
    assert refused.returncode == 1
    assert "clients is 4, but" in refused.stderr


def test_partition_says_what_was_drawn(fedmap: Fedmap) -> None:
    done = fedmap("partition --data synthetic --clients 5 --seed 3")
    assert done.stdout.startswith("synthetic, partition incomplete, seed 3: 10 classes\n")
    assert "  clients: 5\n" in done.stdout
    assert re.search(
        r"^  observed classes per client: mean [\d.]+, least \d, most \d", done.stdout, re.M
    )


@pytest.fixture
def shops(tmp_path: Path) -> Path:
    """One table of three shops with a column of text, in a folder of its own."""
    rows = [
        f"{('oslo', 'bergen', 'tromso')[k % 3]},{k % 7},{1000 * (k % 4)},{'ab'[k % 2]},{k % 4}"
        for k in range(120)
    ]
    (tmp_path / "files").mkdir()
    file = tmp_path / "files/shops.csv"
    file.write_text("\n".join(["shop,f,g,kind,sold", *rows]) + "\n")
    return file


SHOPS = (
    "run --method fedavg --data csv:files/shops.csv --label sold --client-column shop "
    "--categories kind --rounds 1 --epochs 0.2 --workers 1 --quiet"
)


def test_a_run_on_own_data_is_repeated_from_its_toml_in_any_folder(
    fedmap: Fedmap, shops: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fedmap(f"{SHOPS} --out first")
    assert first.returncode == 0, first.stderr
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = fedmap("run ../first/run.toml --out ../second --quiet")
    assert again.returncode == 0, again.stderr
    one, two = tmp_path / "first", tmp_path / "second"
    for name in ("run.toml", "final.json", "global.safetensors"):
        assert (one / name).read_bytes() == (two / name).read_bytes()


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("oslo,0,0,a,0\n", "", "the number of samples changed (120 then, 119 now)"),
        ("oslo,0,0,a,0\n", "oslo,9,0,a,0\n", "the values of the samples changed"),
        ("oslo,0,0,a,0\n", "oslo,0,0,a,1\n", "a label, or who holds which samples, changed"),
        ("oslo,0,0,a,0\n", "oslo,0,0,a,new\n", "the classes changed (new: new)"),
        ("oslo,0,0,a,0\n", "oslo,0,0,c,0\n", "the shape of a sample changed ([4] then, [5] now)"),
    ],
)
def test_a_run_is_not_repeated_on_data_that_changed(
    fedmap: Fedmap, shops: Path, old: str, new: str, says: str
) -> None:
    assert fedmap(f"{SHOPS} --out first").returncode == 0
    shops.write_text(shops.read_text().replace(old, new, 1))
    again = fedmap("run first/run.toml --out second --quiet")
    assert again.returncode == 1
    assert f"csv:{shops} is not what it was: {says}" in again.stderr
    assert fedmap("run first/run.toml --partition-seed 5 --out second --quiet").returncode == 0


def test_escape_sequences_in_a_name_do_not_reach_the_terminal(
    fedmap: Callable[[str], Any],
) -> None:
    refused = fedmap("resume no\x1b]0;owned\x07where\u202e")
    assert refused.returncode == 1
    assert refused.stderr.startswith("fedmap: no\\x1b]0;owned\\x07where\\u202e is not a run folder")
    assert "fedmap: tromsø-🦊 is not" in fedmap("resume tromsø-🦊").stderr
