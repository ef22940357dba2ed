"""All methods on the same federations: their numbers, ranks and places."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmap.errors import FedmapError
from fedmap.experiment import leaderboard as boards
from fedmap.experiment.compare import Comparison, compare
from fedmap.experiment.leaderboard import BOARDS, Board, Entry, leaderboard, ranking
from fedmap.experiment.runs import RunWork
from fedmap.methods import METHODS
from fedmap.simulate.run import Run
from fedmap.simulate.settings import Settings

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
import write_leaderboard

SMALL: dict[str, Any] = {"data": "synthetic", "clients": 4, "rounds": 2, "net": "mlp", "epochs": 1}
Fedmap = Callable[[str], Any]  # the fixture in conftest.py
MINE = "from fedmap.methods import FedRS\nclass Mine(FedRS): pass\n"


def entry(method: str, global_: float | None, personal: float | None, seed: int = 0) -> Entry:
    return Entry(method, seed, global_, personal, personal, 1, 4, 1.0, 1.0)


def test_the_joint_rank_is_the_mean_of_both_ranks() -> None:
    places = ranking([entry("a", 0.9, 0.5), entry("b", 0.8, 0.8), entry("c", 0.7, 0.7)])
    assert [(place.method, place.rank) for place in places] == [("b", 1.5), ("a", 2), ("c", 2.5)]


def test_equal_numbers_share_their_ranks() -> None:
    places = ranking([entry("a", 0.9, 0.5), entry("b", 0.9, 0.5), entry("c", 0.7, 0.4)])
    assert [place.rank for place in places] == [1.5, 1.5, 3]


def test_seeds_count_by_their_mean() -> None:
    several = [entry("a", 0.9, 0.9), entry("a", 0.5, 0.5, 1), entry("b", 0.8, 0.8)]
    assert [place.method for place in ranking(several)] == ["b", "a"]


def test_baselines_have_no_place_and_change_none() -> None:
    with_them = ranking([entry("local", None, 0.99), entry("a", 0.9, 0.9), entry("central", 1, 1)])
    assert [(p.method, p.rank) for p in with_them] == [("a", 1), ("local", None), ("central", None)]


def test_a_method_without_a_global_model_is_last_in_that_goal() -> None:
    places = ranking([entry("personal-only", None, 0.9), entry("a", 0.1, 0.8)])
    assert [place.rank for place in places] == [1.5, 1.5]


def test_what_is_written_is_read_again() -> None:
    entries = [entry("a", None, 0.1 + 0.2), entry("b", 1.0, None, 3)._replace(losers=None)]
    assert boards.read(boards.written(entries)) == entries


@pytest.mark.parametrize("board", BOARDS)
def test_what_is_kept_is_of_known_methods_with_the_boards_seeds(board: str) -> None:
    for one in boards.kept(board):
        assert one.method.partition("[")[0] in METHODS
        assert one.seed in BOARDS[board].seeds


def test_everybody_takes_part() -> None:
    assert {one.partition("[")[0] for one in boards.contenders("fashion-mini")} == set(METHODS)


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOARDS, "fashion-mini", Board("Small", SMALL, (0, 1)))
    monkeypatch.setattr(boards, "kept", lambda board: [entry("map", 0.0, 0.0)])


@pytest.mark.usefixtures("_small")
def test_a_method_of_ones_own_takes_its_place(fedmap: Fedmap, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    done = fedmap(f"leaderboard --method {tmp_path}/mine.py:Mine --out {tmp_path}/out --quiet")
    assert done.returncode == 0, done.stderr
    lines = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("|")]
    assert {line[1] for line in lines[2:]} == {"Mine", "fedavg", "map", "local"}
    assert {path.suffix for path in (tmp_path / "out").glob("fashion-mini.*")} == {
        *(".md", ".csv", ".tex", ".png")
    }


@pytest.mark.usefixtures("_small")
def test_a_method_that_diverges_with_every_seed_is_named(fedmap: Fedmap, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from fedmap.methods import FedAvg\n"
        "class Mine(FedAvg):\n"
        "    def aggregate(self, server, state, uploads):\n"
        "        return {'model': state['model'] + float('nan')}\n"
    )
    result = fedmap(f"leaderboard --method {file}:Mine --out {tmp_path / 'out'} --quiet")
    assert result.returncode == 1
    assert "Mine diverged with every seed of the leaderboard fashion-mini" in result.stderr
    assert str(tmp_path / "out") in result.stderr


@pytest.mark.usefixtures("_small")
def test_numbers_are_those_of_the_runs(tmp_path: Path) -> None:
    places = leaderboard("fashion-mini", ["fedrs"], out=tmp_path)
    found = {place.method: place.entries for place in places}
    assert [one.seed for one in found["fedrs"]] == [0, 1]
    assert all(one.seconds == one.bytes_up == 1 for one in found["fedavg"])
    for one in found["fedrs"]:
        runs = compare(["fedrs", "local"], seeds=[one.seed], out=tmp_path, **SMALL).results
        mine, alone = (runs[name][0].final for name in ("fedrs", "local"))
        assert one.global_accuracy == mine["global_accuracy_last_10"]
        assert one.personal_accuracy == mine["personal_accuracy_all_clients"]
        pairs = zip(*(f["personal_accuracy_per_client"] for f in (mine, alone)), strict=True)
        assert one.losers == sum(a < b for a, b in pairs)


def test_a_board_without_numbers_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boards, "kept", lambda board: [])
    with pytest.raises(FedmapError, match=r"not measured yet; train .* --again --board cifar-10"):
        leaderboard("cifar-10")


def test_nonsense_is_refused() -> None:
    with pytest.raises(FedmapError, match=r"no leaderboard 'mnist'; there are: fashion-mini"):
        leaderboard("mnist")
    with pytest.raises(FedmapError, match=r"^rounds is the same for all methods"):
        leaderboard("fashion-mini", ["map"], rounds=3)


def test_the_page_is_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_leaderboard, "save", lambda *given, **how: None)
    assert write_leaderboard.PAGE.read_text() == write_leaderboard.page()


@pytest.mark.usefixtures("_small")
def test_only_what_is_finished_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_leaderboard, "KEPT", tmp_path / "kept")
    write_leaderboard.collect("fashion-mini", tmp_path)
    assert not (tmp_path / "kept").exists()
    leaderboard("fashion-mini", ["fedrs"], out=tmp_path)
    write_leaderboard.collect("fashion-mini", tmp_path)
    found = boards.read((tmp_path / "kept/fashion-mini.csv").read_text())
    new = {(method, seed) for method in ("fedavg", "fedrs", "local") for seed in (0, 1)}
    assert {(one.method, one.seed) for one in found} == new | {("map", 0)}  # which was kept before


def test_a_timed_run_ends_with_its_timed_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the last round would take longer than they do."""
    monkeypatch.setattr(Run, "_finish", lambda *given: pytest.fail("it went on to the end"))
    clock = iter([1.0, 9.0, 11.0])
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    work = RunWork(Settings.of(SMALL | {"method": "fedavg"}))
    assert boards.seconds_a_round(work) == 2.0


@pytest.mark.usefixtures("_small")
def test_runs_that_are_known_are_not_timed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[str] = []

    def seconds(work: RunWork) -> float:
        timed.append(work.settings.method)
        return {"fedavg": 2.0, "fedrs": 3.0}.get(timed[-1], 1.0)

    monkeypatch.setattr(boards, "seconds_a_round", seconds)
    runs = {
        label: [RunWork(Settings.of(SMALL | {"method": label, "seed": 0}))]
        for label in ("fedavg", "local", "fedrs")
    }
    for work in (one for (one,) in runs.values()):
        work.go(tmp_path, lambda step, words: None)
    both = Comparison({label: runs[label] for label in ("fedavg", "local")}, tmp_path)
    known = [one._replace(seconds=7.0) for one in boards.measured(both)]
    timed.clear()
    found = boards.measured(Comparison(runs, tmp_path), known)
    assert sorted(timed) == ["fedavg", "fedrs"]
    assert {one.method: one.seconds for one in found} == {"fedavg": 7, "local": 7, "fedrs": 1.5}
    other = [one._replace(losers=3) for one in known]  # of other runs
    assert [one.seconds for one in boards.measured(both, other)] == [1.0, 0.5]


@pytest.mark.usefixtures("_small")
def test_a_board_names_the_methods_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_leaderboard, "save", lambda *given, **how: None)
    _, _, missing = write_leaderboard.section("fashion-mini").partition("Not run yet: ")
    assert {"fedavg", "map[preset=own]", "local"} <= set(missing.rstrip(".\n").split(", "))
    assert "map" not in missing.split(", ")


@pytest.mark.parametrize("board", BOARDS)
def test_the_readme_says_what_the_boards_say(board: str) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (told,) = [line for line in readme.splitlines() if line.startswith(f"| {board}:")]
    _, fedavg, ours, other = (cell.strip() for cell in told.strip("|").split("|"))
    lines = boards.table(ranking(boards.kept(board))).lines  # the best first
    cells = {method: f"{in_global} / {personal}" for _, method, in_global, personal, *_ in lines}
    assert (fedavg, ours) == (cells["fedavg"], cells["map[preset=own]"])
    best, *_ = (method for method in cells if not method.startswith("map["))
    assert other == f"{best} {cells[best]}"
    seeds = len({entry.seed for entry in boards.kept(board)})
    assert f"{seeds} seed" in told
