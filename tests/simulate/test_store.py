import errno
import os
from pathlib import Path

import pytest
import torch

from fedmap.errors import FedmapError
from fedmap.simulate.store import FileStore
from fedmap.values import Values, number

INITIAL = {"hpm": torch.zeros(3), "participations": number(0)}


def state(value: float) -> Values:
    return {"hpm": torch.full((3,), float(value)), "participations": number(int(value))}


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    return FileStore(INITIAL, 4, None if request.param == "memory" else tmp_path / "states.bin")


def test_a_client_never_seen_has_the_initial_state(store: FileStore) -> None:
    assert store[2] is INITIAL
    assert store.round_of(2) == 0


def test_the_newest_state_is_read_and_the_one_before_is_kept(store: FileStore) -> None:
    store.put(1, 3, state(3))
    store.put(1, 7, state(7))
    assert store[1]["participations"] == 7
    assert torch.equal(store[1]["hpm"], torch.full((3,), 7.0))
    store.forget_after(6)  # as if round 7 had not been completed
    assert store[1]["participations"] == 3
    store.forget_after(2)
    assert store[1] is INITIAL


def test_another_process_reads_what_was_put_after_the_fork(store: FileStore) -> None:
    reader, writer = os.pipe()
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)  # so that a parent that fails leaves no child behind
        os.read(ready, 1)
        os.write(writer, str(int(store[0]["participations"])).encode())
        os._exit(0)
    store.put(0, 1, state(5))
    os.write(go, b"x")
    assert os.read(reader, 10) == b"5"
    os.waitpid(child, 0)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "states.bin"
    store = FileStore(INITIAL, 4, path)
    store.put(1, 3, state(3))
    store.check(1, 3, 3)
    content = bytearray(path.read_bytes())
    where = content.index(torch.tensor(3.0).numpy().tobytes())
    content[where] ^= 1
    path.write_bytes(content)
    with pytest.raises(FedmapError, match=r"client 1's state \(round 3\) is damaged"):
        FileStore(INITIAL, 4, path).check(1, 3, 3)


def test_a_state_of_another_round_is_noticed(store: FileStore) -> None:
    store.put(1, 3, state(3))
    with pytest.raises(FedmapError, match="client 1's state of round 3, not of round 4"):
        store.check(1, 4, 4)


def test_a_state_that_changes_its_shape_is_refused(store: FileStore) -> None:
    with pytest.raises(FedmapError, match="state of client 0 has changed its entries or shapes"):
        store.put(0, 1, {"hpm": torch.zeros(4), "participations": number(1)})


def test_the_order_of_entries_does_not_matter(store: FileStore) -> None:
    store.put(0, 1, dict(reversed(state(4).items())))
    assert list(store[0]) == list(INITIAL)
    assert int(store[0]["participations"]) == 4
    assert torch.equal(store[0]["hpm"], torch.full((3,), 4.0))


def test_clients_that_never_took_part_take_no_room_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "states.bin"
    store = FileStore({"hpm": torch.zeros(250_000)}, 1000, path)
    store.put(500, 1, {"hpm": torch.ones(250_000)})
    assert path.stat().st_size > 2_000_000_000
    assert path.stat().st_blocks * 512 < 3_000_000


def test_a_full_disk_is_one_sentence_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(INITIAL, 3, tmp_path / "states.bin")

    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(
        FedmapError,
        match=r"cannot write .*states\.bin: No space left on device; whole rounds are kept",
    ):
        store.put(1, 1, state(1))
