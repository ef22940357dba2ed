"""A run seen from outside: its state by its lock and marks, its numbers by its records."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.errors import DivergenceError, FedmapError
from fedmap.simulate.folder import Record, RunFolder
from fedmap.simulate.lock import held
from fedmap.simulate.look import Look

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 3, "epochs": 0.2}


def stop(record: Record) -> None:
    if record["round"] == 2:
        raise KeyboardInterrupt


@pytest.fixture
def stopped(federation: fedmap.Federation, tmp_path: Path) -> Path:
    with pytest.raises(KeyboardInterrupt):
        fedmap.run("fedavg", federation, out=tmp_path / "run", on_round=stop, **SMALL)
    return tmp_path / "run"


def test_a_run_that_goes_on_is_running(federation: fedmap.Federation, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def look(record: Record) -> None:
        found = Look(tmp_path)
        seen.append((found.state, len(found.records)))

    fedmap.run("fedavg", federation, out=tmp_path, on_round=look, **SMALL)
    assert seen == [("running", 1), ("running", 2), ("running", 3)]
    assert Look(tmp_path).state == "done"


def test_a_run_of_another_process_is_running_as_long_as_it_holds_the_lock(stopped: Path) -> None:
    code = f"""
from pathlib import Path
from fedmap.simulate.folder import RunFolder
with RunFolder(Path({str(stopped)!r})).locked():
    print("locked", flush=True)
    input()
"""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        assert Look(stopped).state == "running"
        other.kill()
    assert Look(stopped).state == "stopped"


def test_a_stopped_run_says_how_to_go_on(stopped: Path) -> None:
    found = Look(stopped)
    assert (found.state, len(found.records), found.rounds) == ("stopped", 2, 3)
    assert found.sentence() == f"stopped; go on with: fedmap resume {stopped}"


def test_to_ask_for_the_lock_does_not_take_it(stopped: Path) -> None:
    lock = stopped / "checkpoint" / "lock"
    content = lock.read_bytes()
    assert held(lock) is False
    assert lock.read_bytes() == content
    with RunFolder(stopped).locked():
        assert held(lock) is True


def test_a_run_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    found = Look(tmp_path / "later")
    assert (found.state, found.records, found.over) == ("waiting", [], False)
    assert not (tmp_path / "later").exists()


def test_a_run_that_diverged_says_so(federation: fedmap.Federation, tmp_path: Path) -> None:
    with pytest.raises(DivergenceError) as wrong:
        fedmap.run("fedavg", federation, out=tmp_path, **(SMALL | {"lr": 1e8}))
    found = Look(tmp_path)
    assert found.state == "diverged"
    assert found.over
    assert found.sentence() == f"diverged: {wrong.value}"


def test_a_line_that_is_half_written_is_not_read(stopped: Path) -> None:
    with open(stopped / "rounds.jsonl", "a") as file:
        file.write('{"round": 3, "glo')
    assert [record["round"] for record in Look(stopped).records] == [1, 2]


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(FedmapError, match="is a file; a run is a folder"):
        Look(tmp_path / "a")


def with_records(stopped: Path, records: list[Record], rounds: int = 10) -> Look:
    found = Look(stopped)
    found.records, found.rounds = records, rounds
    return found


def test_the_time_left_is_that_of_the_last_rounds(stopped: Path) -> None:
    records: list[Record] = [{"round": k, "seconds": 9.0 if k < 3 else 2.0} for k in range(1, 13)]
    assert with_records(stopped, records, 20).seconds_left == pytest.approx(2.0 * 8)
    assert with_records(stopped, [], 20).seconds_left is None


@pytest.mark.parametrize(
    ("names", "best"),
    [
        (("global_accuracy_validation", "global_accuracy"), (2, "on held-out samples")),
        (("global_accuracy",), (2, "global")),
        (("personal_accuracy",), (2, "personal")),
    ],
)
def test_the_best_round_is_known(
    names: tuple[str, ...], best: tuple[int, str], stopped: Path
) -> None:
    values = [0.2, 0.7, 0.5]
    records: list[Record] = [
        {"round": k, "global_accuracy": None} | dict.fromkeys(names, value)
        for k, value in enumerate(values, 1)
    ]
    assert with_records(stopped, records).best == best


def test_uploads_that_were_left_out_are_counted(stopped: Path) -> None:
    records: list[Record] = [{"left_out": [{}, {}]}, {}, {"left_out": [{}]}]
    assert with_records(stopped, records).left_out == 3


def test_a_folder_with_a_space_is_quoted_where_a_person_is_told_to_go_on(
    stopped: Path, tmp_path: Path
) -> None:
    folder = stopped.rename(tmp_path / "my run")
    assert Look(folder).sentence() == f"stopped; go on with: fedmap resume '{folder}'"
    with pytest.raises(FedmapError, match=f"fedmap resume '{folder}'"):
        RunFolder.finished(folder)
