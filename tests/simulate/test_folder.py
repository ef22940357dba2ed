"""The files of a run."""

import os
import stat
from pathlib import Path

import pytest

from fedmap.simulate.folder import write_atomically


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
