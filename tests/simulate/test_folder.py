"""The files of a run."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.simulate.folder import RunFolder, write_atomically
from fedmap.simulate.store import FileStore


class CrashError(Exception):
    pass


def crash(*given: object) -> None:
    raise CrashError


# Before the new content is known to be on the disk, and before it takes the old file's place.
@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_crash_while_a_file_is_written_leaves_the_old_one_whole(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "commit.json"
    write_atomically(path, b"old")
    monkeypatch.setattr(os, moment, crash)
    with pytest.raises(CrashError):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as wrong:
        write_atomically(tmp_path / "final.json", b"new")
    assert wrong.value.filename == str(tmp_path / "final.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("lasting", [True, False])
def test_a_file_takes_its_place_when_it_is_whole_and_if_it_is_lasting_on_the_disk(
    lasting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(file: int) -> None:
        kind = os.fstat(file)
        what = "names" if stat.S_ISDIR(kind.st_mode) else f"{kind.st_size} bytes"
        done.append(f"{what} are on the disk")
        fsync(file)

    def noted_replace(source: Path, target: Path) -> None:
        done.append(f"{source.stat().st_size} bytes take their place")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomically(tmp_path / "commit.json", b"new" * 100, lasting)
    steps = ["300 bytes are on the disk", "300 bytes take their place"]
    assert done == ([*steps, "names are on the disk"] if lasting else steps[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["commit.json"]
    assert (tmp_path / "commit.json").read_bytes() == b"new" * 100


SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "fraction": 0.5, "epochs": 1, "batch": 20}


@pytest.mark.parametrize("name", ["checkpoint/states.bin", "checkpoint/lock", "rounds.jsonl"])
def test_nothing_is_written_through_a_symbolic_link(name: str, tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "run" / name
    victim.write_text("somebody's")
    (tmp_path / "run/checkpoint").mkdir(parents=True)
    link.symlink_to(victim)
    folder, values = RunFolder(tmp_path / "run"), {"a": torch.zeros(3)}

    def write_all() -> None:
        with folder.locked():
            store = FileStore(values, 2, folder.states)
            folder.commit({"round": 1, "clients": []}, values, store)

    with pytest.raises(FedmapError, match=rf"{link} is a symbolic link; fedmap writes nothing"):
        write_all()
    assert victim.read_text() == "somebody's"


@pytest.mark.parametrize("name", ["checkpoint", "personal"])
def test_a_folder_of_a_run_that_is_a_symbolic_link_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "elsewhere")
    with (
        pytest.raises(FedmapError, match=f"{name} is a symbolic link"),
        RunFolder(tmp_path / "run").locked(),
    ):
        pass
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_is_replaced_was_a_link_only_the_link_goes(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("somebody's")
    (tmp_path / "final.json").symlink_to(tmp_path / "victim")
    RunFolder(tmp_path).write("final.json", "ours")
    assert (tmp_path / "victim").read_text() == "somebody's"
    assert not (tmp_path / "final.json").is_symlink()


def test_a_folder_with_somebody_elses_files_is_refused_and_stays_as_it_is(
    federation: Federation, tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FedmapError, match=r"is not empty and no run folder: it has 'thesis\.tex'"):
        fedmap.run("fedavg", federation, out=tmp_path, **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_start_that_was_killed_before_its_settings_were_written_is_no_foreign_folder(
    federation: Federation, tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/lock").touch()
    (tmp_path / "run.toml.part").touch()
    assert len(fedmap.run("fedavg", federation, out=tmp_path, **SMALL).rounds) == 2


def test_the_clients_states_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with folder.locked():
        assert folder.states is not None
        folder.states.touch(mode=0o644)  # as an older version left it
        FileStore({"a": torch.zeros(3)}, 2, folder.states)
        assert stat.S_IMODE(folder.states.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.checkpoint.stat().st_mode) == 0o700
