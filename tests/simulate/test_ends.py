"""How a run ends that does not come to its end: late clients, signals, and what is said of them."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap as library
from fedmap.cli.main import main
from fedmap.client import Client
from fedmap.federation import Federation
from fedmap.methods import METHODS, Local
from fedmap.methods.fedavg import FedAvg
from fedmap.simulate import Result
from fedmap.simulate.folder import RunFolder
from fedmap.values import Values

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "fraction": 1.0, "epochs": 1, "batch": 20}


class Odd(FedAvg):
    """FedAvg whose client 2 does in round 2 what the environment says."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        what = os.environ.get("ODD", "")
        if client.number == 2 and client.round == 2:
            if what == "hang":
                time.sleep(60)
            elif what == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif what == "exit":
                sys.exit(0)
        if what == "late" and client.round > 2:
            raise ZeroDivisionError
        return super().local_round(client, down, state)

    def aggregate(self, server: Any, state: Values, uploads: Any) -> Values:
        if os.environ.get("ODD") == "server exit":
            sys.exit(0)
        return super().aggregate(server, state, uploads)


@pytest.fixture(autouse=True)
def _odd() -> Iterator[None]:
    with METHODS.lent("odd", Odd):
        yield


@pytest.mark.parametrize("what", ["hang", "stop"])
def test_a_client_that_does_not_come_back_ends_the_run_with_its_number(
    what: str, federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", what)
    sentence = r"client 2 failed in round 2:\nnothing came back within 1 s \(client_timeout\)"
    with pytest.raises(library.FedmapError, match=sentence):
        library.run("odd", federation, out=tmp_path / "run", client_timeout=1, **SMALL)
    monkeypatch.setenv("ODD", "")
    resumed = library.run("odd", federation, out=tmp_path / "run", resume=True, **SMALL)
    whole = library.run("odd", federation, **SMALL)
    assert [r | {"seconds": 0} for r in resumed.rounds] == [
        r | {"seconds": 0} for r in whole.rounds
    ]


def test_the_time_is_one_clients_and_not_that_of_all(federation: Federation) -> None:
    """Six clients of 0.2 s each one after the other are in time."""

    class Steady(FedAvg):
        def local_round(self, client: Client, down: Values, state: Values) -> Local:
            time.sleep(0.2)
            return super().local_round(client, down, state)

    with METHODS.lent("steady", Steady):
        given = SMALL | {"rounds": 1}
        assert library.run("steady", federation, client_timeout=1, **given).rounds


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_an_engine_that_cannot_watch_the_time_says_so(engine: str, federation: Federation) -> None:
    with pytest.raises(library.FedmapError, match=f"the engine {engine} cannot watch a client's"):
        library.run("odd", federation, client_timeout=1, engine=engine, **SMALL)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_raises_systemexit_has_failed(
    workers: int, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "exit")
    with pytest.raises(library.FedmapError, match=r"(?s)client 2 failed in round 2:.*SystemExit"):
        library.run("odd", federation, workers=workers, **SMALL)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_of_a_personal_model_names_no_round_that_never_was(
    workers: int, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "late")
    with pytest.raises(library.FedmapError, match=r"client \d failed after the last round:"):
        library.run("odd", federation, workers=workers, **SMALL)


def test_a_failure_of_the_one_model_of_all_names_its_round(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where samples are pooled, clients are asked for their personal models in every round."""
    from fedmap.methods.central import Central

    def fail(*given: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(Central, "kept_personal", fail)
    with pytest.raises(library.FedmapError, match=r"client \d failed in round 1:"):
        library.run("central", federation, **SMALL)


def test_a_failure_of_the_global_model_at_a_client_names_no_round_that_never_was(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("fedmap.simulate.tasks.own", fail)
    with pytest.raises(library.FedmapError, match=r"client 0 failed after the last round:"):
        library.run("odd", federation, **SMALL)


def test_a_folder_that_was_removed_is_not_said_to_keep_rounds(
    federation: Federation, tmp_path: Path
) -> None:
    def remove(record: dict[str, Any]) -> None:
        shutil.rmtree(tmp_path / "run")

    with pytest.raises(library.FedmapError, match=r"the folder was removed .* nothing of it is"):
        library.run("fedavg", federation, out=tmp_path / "run", on_round=remove, **SMALL)


@pytest.mark.parametrize("read", ["run", "Result.read"])
def test_a_checkpoint_left_by_a_kill_after_the_end_goes_at_the_next_touch(
    read: str, federation: Federation, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    library.run("map", federation, out=out, **SMALL)
    (out / "checkpoint").mkdir()
    (out / "checkpoint/states.bin").write_bytes(b"a" * 100)
    if read == "run":
        library.run("map", federation, out=out, **SMALL)
    else:
        Result.read(out)
    assert not (out / "checkpoint").exists()


def test_a_checkpoint_that_is_to_be_kept_stays(federation: Federation, tmp_path: Path) -> None:
    library.run("map", federation, out=tmp_path / "run", keep_states=True, **SMALL)
    Result.read(tmp_path / "run")
    assert (tmp_path / "run/checkpoint/states.bin").exists()


COMMAND = "run --data synthetic --net mlp --clients 4 --epochs 1 --workers 2 --rounds 5000 --quiet"


def commanded(arguments: str, folder: Path) -> int:
    """The command in a process and a session of its own; its standard error goes to a file."""
    child = os.fork()
    if child == 0:
        os.setsid()
        # Where the tests run in the background, Ctrl-C is inherited as ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(folder)
        for file, place in (("out.txt", 1), ("err.txt", 2)):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), place)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
        sys.argv = ["fedmap", *arguments.split()]
        try:
            main()
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(int(end.code or 0))
        finally:
            os._exit(99)
    return child


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in found.split()]


def test_a_signal_while_a_library_is_imported_ends_at_once(tmp_path: Path) -> None:
    """Half imported, torch and numpy do not stand an exception."""
    (tmp_path / "slow.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "finally:\n"
        "    print('the handler raised')\n"
    )
    script = (
        "from fedmap.signals import ending_handlers, on_signals\n"
        "with on_signals(ending_handlers()):\n"
        "    import slow\n"
    )
    line = [sys.executable, "-c", script]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "fedmap: stopped\n")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="the workers cannot be seen")
@pytest.mark.parametrize(
    ("how", "code", "all_of_them"),
    [
        (signal.SIGINT, 130, True),
        (signal.SIGTERM, 143, False),
        (signal.SIGTERM, 143, True),
        (signal.SIGHUP, 129, True),
    ],
)
def test_a_signal_ends_a_run_in_good_order(
    how: signal.Signals, code: int, all_of_them: bool, tmp_path: Path
) -> None:
    """To the process alone, or as a terminal does to its workers too."""
    child = commanded(f"{COMMAND} --out run", tmp_path)
    rounds, end = tmp_path / "run/rounds.jsonl", time.monotonic() + 60
    while not (rounds.exists() and rounds.stat().st_size):
        assert os.waitpid(child, os.WNOHANG) == (0, 0), (tmp_path / "err.txt").read_text()
        assert time.monotonic() < end
        time.sleep(0.01)
    workers = children(child)
    assert len(workers) == 2
    (os.killpg if all_of_them else os.kill)(child, how)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    said = (tmp_path / "err.txt").read_text()
    assert said == "\nstopped; whole rounds are kept in run. Go on with: fedmap resume run\n"
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)


@pytest.mark.parametrize("what", ["exit", "server exit"])
def test_no_exit_of_a_method_passes_for_success(
    what: str, fedmap: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", what)
    small = "--data synthetic --net mlp --clients 4 --rounds 2 --fraction 1 --workers 1 --quiet"
    done = fedmap(f"run --method odd {small} --out run")
    assert done.returncode == 1
    assert "SystemExit" in done.stderr


def test_what_is_kept_before_the_first_whole_round_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    assert RunFolder(tmp_path).what_is_kept().startswith("no whole round is kept, begin again")


def test_the_loss_that_left_the_numbers_after_the_last_round_names_no_round(
    federation: Federation,
) -> None:
    from fedmap.simulate import Settings
    from fedmap.simulate.tasks import Setup

    setup = Setup(Settings(net="tiny", rounds=3), federation)
    for round, when in ((3, "in round 3"), (4, "after the last round")):
        client = setup.client(1, round)
        client._loss_sum, client._losses = torch.tensor(float("nan")), 1
        with pytest.raises(library.FedmapError, match=f"client 1 is nan {when} "):
            _ = client.mean_loss
