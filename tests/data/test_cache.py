import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest

from fedmap.data.cache import cached
from fedmap.data.locate import cache_dir


class Decoder:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.calls += 1
        return {
            "x": np.full((3, 2), self.calls, np.uint8),
            "names": np.array(["a", "bc"]),
            "none": np.empty((0, 4)),
        }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"official")
    return path


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


def entries() -> list[Path]:
    return sorted((cache_dir() / "decoded").iterdir())


def test_the_second_time_nothing_is_decoded_and_the_arrays_are_mapped(
    source: Path, decoder: Decoder
) -> None:
    first, second = (cached("set", [source], decoder) for _ in range(2))
    assert decoder.calls == 1
    for arrays in (first, second):
        assert isinstance(arrays["x"], np.memmap)
        assert arrays["x"].tolist() == [[1, 1]] * 3
        assert arrays["names"].tolist() == ["a", "bc"]
        assert arrays["none"].shape == (0, 4)


def test_writing_to_the_arrays_does_not_change_the_cache(source: Path, decoder: Decoder) -> None:
    cached("set", [source], decoder)["x"][:] = 9
    assert cached("set", [source], decoder)["x"].max() == 1


@pytest.mark.parametrize("change", ["size", "time", "path", "settings"])
def test_a_changed_source_is_decoded_again(source: Path, decoder: Decoder, change: str) -> None:
    cached("set", [source], decoder, 32)
    settings = 32
    if change == "size":
        source.write_bytes(b"official, longer")
    elif change == "time":
        os.utime(source, ns=(0, 0))
    elif change == "path":
        source = source.rename(source.with_name("moved"))
    else:
        settings = 64
    assert cached("set", [source], decoder, settings)["x"].max() == 2


def damage_array(entry: Path) -> None:
    (entry / "x.npy").write_bytes((entry / "x.npy").read_bytes()[:-3])


def damage_header(entry: Path) -> None:
    (entry / "x.npy").write_bytes(b"\x93NUMPY" + os.urandom(50))


def remove_array(entry: Path) -> None:
    (entry / "names.npy").unlink()


def remove_list(entry: Path) -> None:
    (entry / "names").unlink()


@pytest.mark.parametrize("damage", [damage_array, damage_header, remove_array, remove_list])
def test_a_damaged_entry_is_made_again(source: Path, decoder: Decoder, damage) -> None:
    cached("set", [source], decoder)
    damage(entries()[0])
    assert cached("set", [source], decoder)["x"].max() == 2
    assert cached("set", [source], decoder)["x"].max() == 2
    assert len(entries()) == 1


def test_an_unwritable_cache_does_not_stop_a_run(
    source: Path,
    decoder: Decoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(source / "below-a-file"))
    assert cached("set", [source], decoder)["x"].max() == 1
    assert len(caplog.records) == 1
    assert "not kept in the cache" in caplog.text


def test_a_full_disk_leaves_nothing_behind(
    source: Path,
    decoder: Decoder,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    assert cached("set", [source], decoder)["x"].max() == 1
    assert "No space left on device" in caplog.text
    assert entries() == []


def test_what_a_killed_process_left_is_removed_after_a_day(source: Path, decoder: Decoder) -> None:
    cached("set", [source], decoder)
    old, new = (cache_dir() / "decoded" / name for name in (".part-old", ".part-new"))
    old.mkdir()
    new.mkdir()
    os.utime(old, (time.time() - 2 * 86400,) * 2)
    cached("another", [source], decoder)
    assert not old.exists()
    assert new.exists()


def test_an_entry_that_nobody_read_for_long_is_removed_and_one_in_use_stays(
    source: Path, decoder: Decoder
) -> None:
    long_ago = (time.time() - 100 * 86400,) * 2
    folder = cache_dir() / "decoded"
    for name in ("unused", "used"):
        cached(name, [source], decoder)
    unused, used = (next(folder.glob(f"{name}-*")) for name in ("unused", "used"))
    for entry in (unused, used):
        os.utime(entry, long_ago)
    cached("used", [source], decoder)
    cached("new", [source], decoder)
    assert not unused.exists()
    assert used.exists()
