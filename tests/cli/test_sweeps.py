"""`fedmap sweep`, `--plan` and `--track` from the shell: what is tried, and what is said."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmap.cli.sweeps import Asked
from fedmap.errors import FedmapError
from fedmap.experiment.search import probe
from fedmap.experiment.space import space_of
from fedmap.paper.groups import GROUPS

Fedmap = Callable[[str], Any]
LESS = "--data synthetic --net tiny --clients 4 --rounds 2 --epochs 0.2 --workers 1"
NOTHING = Asked({}, False, None, None, None, {})


def test_a_sweep_ends_with_a_command_that_gives_the_best_again(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    done = fedmap(f"sweep --method fedavg -g lr=0.001,0.3 --validation 0.2 {LESS}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    best = next(line for line in lines if line.startswith("| fedavg[")).split("|")[1].strip()
    assert f"the best on held-out samples is {best}, with" in done.stdout
    (said,) = (line for line in lines if line.startswith("the best again: "))
    words = shlex.split(said.removeprefix("the best again: "))
    again = fedmap(" ".join([*words[1:], "--out", "again", "--quiet"]))
    assert again.returncode == 0, again.stderr
    twins = [
        path.parent
        for path in Path("runs/sweep").glob("*/final.json")
        if path.read_bytes() == Path("again/final.json").read_bytes()
    ]
    assert len(twins) == 1
    lr = best.removeprefix("fedavg[lr=").removesuffix("]")
    assert f"lr = {lr}\n" in (twins[0] / "run.toml").read_text()
    assert {path.name for path in Path("runs/sweep").glob("sweep.*")} == {
        *("sweep.md", "sweep.csv", "sweep.tex", "sweep.png")
    }


def test_a_search_without_a_share_says_which_it_takes(fedmap: Fedmap) -> None:
    done = fedmap(f"sweep --method fedavg -g lr=0.01..0.3:log --trials 1 {LESS}")
    assert done.returncode == 0, done.stderr
    assert "chosen on 10% of each client's training samples (--validation)" in done.stderr
    assert "--validation 0.1" in done.stdout.splitlines()[-1]


def test_a_file_says_what_an_option_does_not(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        'method = "map"\nrounds = 7\nseeds = [3, 4]\ntrials = 5\nprune = "none"\n'
        '[grid]\nalpha = [0.1, 0.5]\nweight = "1e-3..1e-1:log"\nlr = 0.2\n'
        "[params]\ntemperature = 4.0\n"
    )
    asked = NOTHING._replace(grid={"alpha": [0.9]}, settings={"rounds": 2}).with_file(file, False)
    assert asked == Asked(
        {"alpha": [0.9], "weight": "1e-3..1e-1:log", "lr": [0.2]},
        False,
        5,
        "none",
        [3, 4],
        {"method": "map", "rounds": 2, "params": {"temperature": 4.0}},
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("grid = 3\n", r"grid is 3, but must be a table of values: \[grid\]"),
        ('trials = "many"\n', "trials has 'many'; allowed: whole numbers"),
        ("seeds = [0.5]\n", "seeds has 0.5; allowed: whole numbers"),
    ],
)
def test_nonsense_in_a_file_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(FedmapError, match=sentence):
        NOTHING.with_file(tmp_path / "a.toml", False)


def test_the_file_in_the_guide_is_a_search(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/guide/sweep.md").read_text()
    (tmp_path / "a.toml").write_text(page.partition("```toml\n")[2].partition("```")[0])
    asked = NOTHING.with_file(tmp_path / "a.toml", False)
    assert (asked.method, asked.trials, asked.seeds) == ("map", 20, [0, 1, 2])
    probe(asked.settings, space_of(asked.grid))  # else an error


def test_the_papers_groups_are_tried_each_with_each_combination() -> None:
    asked = NOTHING._replace(groups=True, settings={"method": "fedrs"})
    assert asked.tried() == GROUPS["fedrs"]
    both = asked._replace(grid={"lr": [0.1, 0.2]}).tried()
    assert both == [group | {"lr": lr} for group in GROUPS["fedrs"] for lr in (0.1, 0.2)]


def test_groups_of_a_method_that_has_none_are_refused() -> None:
    with pytest.raises(FedmapError, match="no groups of parameters for fedavg; it has some for"):
        NOTHING._replace(groups=True, settings={"method": "fedavg"}).tried()
    with pytest.raises(FedmapError, match="leave out --trials"):
        NOTHING._replace(groups=True, trials=3, settings={"method": "fedrs"}).tried()


def test_a_plan_says_what_is_left_and_what_is_done_and_does_nothing(
    fedmap: Fedmap, tmp_path: Path
) -> None:
    fedmap(f"compare --methods fedavg {LESS} --quiet")
    before = sorted(tmp_path.rglob("*"))
    done = fedmap(f"compare --methods fedavg,map -p alpha=0.3 {LESS} --plan")
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first.startswith("1 to do, 1 done already; about ")
    assert "GB of memory" in first
    assert lines[0].startswith("  map: 2 steps, ")
    assert lines[1] == "  fedavg: done"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_search_has_a_plan_too(fedmap: Fedmap, tmp_path: Path) -> None:
    done = fedmap(f"sweep --method map -g alpha=0.1..0.9 --trials 7 {LESS} --plan")
    assert done.returncode == 0, done.stderr
    assert "7 such trials: at most " in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_parameter_that_no_method_has_is_refused(fedmap: Fedmap) -> None:
    done = fedmap(f"compare --methods fedavg,map -p alpa=0.3 {LESS}")
    assert done.returncode == 1
    assert "no method here has a parameter 'alpa'; did you mean 'alpha'?" in done.stderr


def test_track_follows_a_run_a_comparison_and_a_resumed_run(fedmap: Fedmap) -> None:
    assert fedmap(f"run --method fedavg {LESS} --out one --track tensorboard").returncode == 0
    assert fedmap(f"compare --methods fedavg,map {LESS} --track tensorboard").returncode == 0
    assert fedmap("resume one --rounds 3 --quiet --track tensorboard").returncode == 0
    assert len(list(Path("one/track/tensorboard").iterdir())) == 1
    assert len(list(Path("runs/compare").glob("*/track/tensorboard/events*"))) == 2


def test_an_unknown_tracker_is_refused_before_anything_runs(fedmap: Fedmap, tmp_path: Path) -> None:
    done = fedmap(f"run --method fedavg {LESS} --track tensorbord")
    assert done.returncode == 1
    assert "there is no tracker 'tensorbord'; did you mean 'tensorboard'?" in done.stderr
    assert not (tmp_path / "runs").exists()
