"""Which runs a report is about: their states, their labels, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.errors import FedmapError
from fedmap.report.page.found import labels, read, shown
from fedmap.simulate.folder import Record
from fedmap.simulate.lock import locked
from fedmap.simulate.settings import Settings

SMALL: dict[str, Any] = {"data": "synthetic", "net": "tiny", "clients": 4, "epochs": 0.2}


def stopped_run(folder: Path, after: int = 2) -> Path:
    """A run that ends in the middle."""

    def stop(record: Record) -> None:
        if record["round"] == after:
            raise KeyboardInterrupt

    federation = fedmap.partition(fedmap.load("synthetic"), 4)
    with pytest.raises(KeyboardInterrupt):
        fedmap.run("map", federation, net="tiny", rounds=5, out=folder, on_round=stop)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped_run(tmp_path_factory.mktemp("stopped") / "run")


def test_a_finished_run_is_done(hostile_runs: Path) -> None:
    assert read(hostile_runs / "map-0").state == "done"


def test_a_stopped_run_is_shown_up_to_its_last_round_with_how_to_go_on(stopped: Path) -> None:
    found = read(stopped)
    assert (found.state, len(found.result.rounds)) == ("stopped", 2)
    assert found.note == f"stopped; go on with: fedmap resume {stopped}"
    last = json.loads((stopped / "rounds.jsonl").read_text().splitlines()[-1])
    assert found.result.final["global_accuracy"] == last["global_accuracy"]


def test_a_run_that_somebody_works_on_is_running(stopped: Path) -> None:
    with locked(stopped / "checkpoint/lock"):
        assert read(stopped).state == "running"


def test_a_line_that_is_being_written_is_no_round_yet(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    with open(tmp_path / "run/rounds.jsonl", "a") as rounds:
        rounds.write('{"round": 3, "global_acc')
    assert len(read(tmp_path / "run").result.rounds) == 2


def test_a_run_that_has_just_begun_has_no_round(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    (tmp_path / "run/rounds.jsonl").unlink()
    found = shown([tmp_path])
    assert [len(one.result.rounds) for one in found.all] == [0]
    assert found.results == {"map": []}


def test_a_run_that_diverged_says_so_and_does_not_count(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    (tmp_path / "run/diverged").write_text("round 2: not finite\n")
    found = shown([tmp_path])
    assert [(one.state, one.note) for one in found.all] == [
        ("diverged", "diverged: round 2: not finite")
    ]
    assert found.results == {"map": []}


def test_a_folder_stands_for_all_runs_in_it(hostile_runs: Path) -> None:
    found = shown([hostile_runs])
    seeds = {
        label: [one.result.settings.seed for one in runs] for label, runs in found.runs.items()
    }
    assert seeds == {"local": [0, 1], "fedavg": [0, 1], "map": [0, 1]}


def test_a_run_that_is_given_twice_counts_once(hostile_runs: Path) -> None:
    found = shown(
        [hostile_runs, hostile_runs / "map-0", fedmap.Result.read(hostile_runs / "map-0")]
    )
    assert len(found.all) == 6


def test_a_damaged_run_among_others_is_named_with_its_reason(
    hostile_runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(hostile_runs, tmp_path, dirs_exist_ok=True)
    (tmp_path / "map-0/final.json").write_text("{}")
    found = shown([tmp_path])
    assert len(found.all) == 5
    ((folder, reason),) = found.damaged.items()
    assert folder == tmp_path / "map-0"
    assert "its checksum is not the one that the run left" in reason


def test_a_damaged_run_alone_is_one_sentence(stopped: Path, tmp_path: Path) -> None:
    shutil.copytree(stopped, tmp_path / "run")
    (tmp_path / "run/rounds.jsonl").write_text('{"round": 1}\n')
    with pytest.raises(FedmapError, match=r"rounds\.jsonl is damaged: 'seconds' of a record is"):
        shown([tmp_path / "run"])


def test_what_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="holds no run: neither it nor a folder in it has"):
        shown([tmp_path])
    with pytest.raises(FedmapError, match=r"there is no folder .*nowhere"):
        shown([tmp_path / "nowhere"])


def test_runs_of_different_data_are_refused(hostile_runs: Path, stopped: Path) -> None:
    with pytest.raises(FedmapError, match=r"different data: arrays in .*synthetic in .*one"):
        shown([hostile_runs, stopped])


def variants(*given: dict[str, Any]) -> list[str]:
    return labels([Settings.of(SMALL | one) for one in given])


def test_different_methods_have_their_names() -> None:
    assert variants({"method": "fedavg"}, {"method": "map"}) == ["fedavg", "map"]


def test_variants_of_a_method_are_told_apart_by_what_is_no_default() -> None:
    assert variants(
        {"method": "map"},
        {"method": "map", "params": {"alpha": 0.5}},
        {"method": "map", "lr": 0.5, "momentum": 0.5},
    ) == ["map", "map[alpha=0.5]", "map[lr=0.5,momentum=0.5]"]


def test_a_parameter_that_is_no_default_is_always_named() -> None:
    alone = {"method": "map", "params": {"alpha": 0.5}, "lr": 0.5}
    assert variants(alone) == ["map[alpha=0.5]"]


def test_a_preset_is_called_by_its_name() -> None:
    own = {"preset": "own"}
    assert variants(
        {"method": "map"},
        {"method": "map", "params": own},
        {"method": "map", "params": own | {"alpha": 0.5}},
    ) == ["map", "map[preset=own]", "map[preset=own,alpha=0.5]"]
