"""Workers whose parent was killed: they end with it, and nothing that they leave reaches the run
that goes on."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.client import Client
from fedmap.federation import Federation
from fedmap.methods import METHODS, Local
from fedmap.methods.map import MAP
from fedmap.simulate import lock
from fedmap.simulate.store import FileStore
from fedmap.values import Values, number

SMALL: dict[str, Any] = {
    "net": "tiny", "rounds": 3, "fraction": 0.34, "epochs": 1, "batch": 20, "lr": 0.1, "workers": 2,
}  # fmt: skip


class Slow(MAP):
    """MAP whose clients take long in one round, which the environment names: `killed` are those of
    a process that will be killed, so they tell that they have begun, and what they leave is
    wrong; `resumed` are those of the next one, and take longer."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        round, _, kind = os.environ.get("SLOW", "0:").partition(":")
        local = super().local_round(client, down, state)
        if client.round != int(round):
            return local
        if kind == "resumed":
            time.sleep(1.2)
            return local
        with open(kind, "a") as file:
            file.write("x")
        time.sleep(0.6)
        return local._replace(state={name: value + 1 for name, value in local.state.items()})


@pytest.fixture(autouse=True)
def _slow() -> Iterator[None]:
    with METHODS.lent("slow", Slow):
        yield


def forked(job: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        try:
            job()
        finally:
            os._exit(9)
    return child


def killed_in(round: int, federation: Federation, out: Path, begun: Path) -> None:
    """Carry the run on in another process, and kill that one while clients of this round train."""

    def job() -> None:
        os.environ["SLOW"] = f"{round}:{begun}"
        fedmap.run("slow", federation, out=out, resume=True, **SMALL)

    child = forked(job)
    while not begun.exists() or begun.stat().st_size < 2:
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def files(folder: Path) -> dict[str, bytes]:
    paths = [*folder.glob("*.safetensors"), *folder.glob("personal/*"), folder / "final.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_killed_while_clients_train_and_resumed_at_once_a_run_gives_the_same_bits(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed"
    fedmap.run("slow", federation, out=whole, **SMALL)
    killed_in(2, federation, out, tmp_path / "begun")
    monkeypatch.setenv("SLOW", "2:resumed")
    fedmap.run("slow", federation, out=out, resume=True, **SMALL)
    assert files(out) == files(whole)


def test_killed_again_in_the_round_that_was_resumed_a_run_still_goes_on(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed"
    fedmap.run("slow", federation, out=whole, **SMALL)
    for time_of_it in ("first", "second"):
        killed_in(2, federation, out, tmp_path / time_of_it)
    monkeypatch.setenv("SLOW", "2:resumed")
    fedmap.run("slow", federation, out=out, resume=True, **SMALL)
    assert files(out) == files(whole)


def test_the_lock_is_held_as_long_as_a_forked_process_lives(tmp_path: Path) -> None:
    """The one who took it is killed; whom it forked lives on for half a second."""
    path = tmp_path / "checkpoint/lock"
    path.parent.mkdir()

    def job() -> None:
        with lock.locked(path):
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.5)

    child = forked(job)
    os.waitpid(child, 0)
    assert not lock.owner_lives(path)
    assert lock.taken(path) is None
    began = time.monotonic()
    with lock.locked(path):
        assert time.monotonic() - began < 5


def test_a_lock_whose_file_was_removed_is_nobodys(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint/lock"
    path.parent.mkdir()
    with lock.locked(path):
        path.unlink()
        with lock.locked(path):
            assert lock.taken(path) is None


def test_a_write_with_an_old_ticket_is_refused(tmp_path: Path) -> None:
    initial = {"participations": number(0)}
    old = FileStore(initial, 2, tmp_path / "states.bin")
    old.put(0, 1, {"participations": number(1)})
    new = FileStore(initial, 2, tmp_path / "states.bin")
    for write in (lambda: old.put(1, 1, initial), lambda: old.drop(0, 1)):
        with pytest.raises(fedmap.FedmapError, match="another process has gone on with the run"):
            write()
    assert [new.round_of(client) for client in (0, 1)] == [1, 0]
    new.put(1, 1, initial)
