import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import fedmap
from fedmap.client import Client
from fedmap.federation import Federation
from fedmap.methods import METHODS, Local
from fedmap.methods.fedavg import FedAvg
from fedmap.simulate import Result
from fedmap.simulate.engines import spawn
from fedmap.values import Values

SMALL: dict[str, Any] = {"rounds": 2, "fraction": 0.5, "epochs": 1, "batch": 8, "lr": 0.1}


def outcome(result: Result) -> tuple[Any, ...]:
    """All that a run leaves, but for the time it took."""
    rounds = [{n: v for n, v in record.items() if n != "seconds"} for record in result.rounds]
    models = sorted(result.folder.rglob("*.safetensors"))
    return rounds, result.final, [path.read_bytes() for path in models]


@pytest.mark.parametrize(("method", "workers"), [("map", 2), ("scaffold", 1)])
def test_new_processes_give_the_bits_of_this_one(
    method: str, workers: int, images: Federation
) -> None:
    small = SMALL | {"net": "mlp"}
    here = fedmap.run(method, images, **small)
    there = fedmap.run(method, images, **small, engine="spawn", workers=workers)
    assert outcome(here) == outcome(there)


@pytest.fixture
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine with forked processes: they start in no time, and know what this one does."""
    forked = multiprocessing.get_context("fork")
    monkeypatch.setattr(multiprocessing, "get_context", lambda kind: forked)


class Failing(FedAvg):
    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        if client.number == 2:
            if os.environ["FAIL"] == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            if os.environ["FAIL"] == "hang":
                time.sleep(60)
            if os.environ["FAIL"] == "exit":
                raise SystemExit(3)
            raise ZeroDivisionError("deep inside")
        return super().local_round(client, down, state)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("raise", r"(?s)client 2 failed in round 1:.*local_round.*ZeroDivisionError: deep inside"),
        (
            "die",
            r"client 2 failed in round 1:\nits worker process was ended by signal 9 \(SIGKILL\)",
        ),
        (
            "hang",
            r"client 2 failed in round 1:\nnothing came back within 1 s \(client_timeout\)",
        ),
        ("exit", r"(?s)client 2 failed in round 1:.*SystemExit: 3"),
    ],
)
@pytest.mark.usefixtures("_quick")
def test_a_client_that_fails_ends_the_run_and_says_how(
    how: str, sentence: str, federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS._things, "failing", Failing)
    monkeypatch.setenv("FAIL", how)
    everybody = SMALL | {"fraction": 1, "net": "tiny"}
    with pytest.raises(fedmap.FedmapError, match=sentence):
        fedmap.run("failing", federation, engine="spawn", workers=2, client_timeout=1, **everybody)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("_quick")
def test_more_workers_than_clients_of_a_round_give_the_same_bits(federation: Federation) -> None:
    small = SMALL | {"net": "tiny"}
    many = fedmap.run("map", federation, engine="spawn", workers=5, **small)
    assert outcome(many) == outcome(fedmap.run("map", federation, **small))


def test_a_net_that_no_other_process_could_find_is_refused(images: Federation) -> None:
    class Here(nn.Sequential):
        def __init__(self, shape: tuple[int, ...], classes: int) -> None:
            super().__init__(nn.Flatten(), nn.Linear(math.prod(shape), classes))

    with pytest.raises(fedmap.FedmapError, match="cannot send the method or net to its processes"):
        fedmap.run("fedavg", images, net=Here, engine="spawn", workers=1, **SMALL)


@pytest.mark.usefixtures("_quick")
def test_a_worker_that_cannot_begin_says_why(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> Any:
        raise fedmap.FedmapError("there is no net 'mine'")

    monkeypatch.setattr(spawn, "_setup", refuse)
    with pytest.raises(fedmap.FedmapError, match=r"^there is no net 'mine'$"):
        fedmap.run("map", federation, engine="spawn", workers=2, net="tiny", **SMALL)
    assert multiprocessing.active_children() == []


@pytest.mark.usefixtures("_quick")
def test_a_worker_that_ends_before_it_begins_points_to_the_script(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "_work", lambda pipe: os._exit(1))
    with pytest.raises(
        fedmap.FedmapError, match=r"exit code 1 before.*if __name__ == \"__main__\":$"
    ):
        fedmap.run("map", federation, engine="spawn", workers=2, net="tiny", **SMALL)
    assert multiprocessing.active_children() == []


def test_a_run_in_a_process_that_is_being_started_is_refused(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(fedmap.FedmapError, match=r"imports the script.*if __name__"):
        fedmap.run("map", federation, net="tiny", **SMALL)


def test_fork_is_refused_off_the_cpu(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmap.devices.require", lambda name: None)
    with pytest.raises(fedmap.FedmapError, match=r"fork is for the CPU.*choose spawn"):
        fedmap.run("map", federation, net="tiny", engine="fork", device="mps", **SMALL)


POOR = """
import multiprocessing.context, os, signal, sys
sys.modules["fcntl"] = sys.modules["resource"] = None
for name in ("fdatasync", "fork", "memfd_create", "pread", "preadv", "pwrite", "pwritev",
             "sched_getaffinity"):
    delattr(os, name)
del signal.SIGHUP, multiprocessing.context.ForkProcess

import fedmap, fedmap.cli.main, fedmap.experiment.measure, fedmap.flower.keys, fedmap.flower.states

if __name__ == "__main__":
    federation = fedmap.partition(fedmap.load("synthetic"), 3, kind="iid")
    small = {"net": "mlp", "rounds": 1, "epochs": 0.1}
    one = fedmap.run("map", federation, out="one", **small)
    new = fedmap.run("map", federation, out="new", engine="spawn", **small)
    assert one.final == new.final
    assert fedmap.run("map", federation, out="new", engine="spawn", **small).final == one.final
    try:
        fedmap.run("map", federation, engine="fork", **small)
    except fedmap.FedmapError as sentence:
        print(sentence)
"""


def test_a_system_without_fork_and_locks_runs_one_process_and_new_ones(tmp_path: Path) -> None:
    (tmp_path / "poor.py").write_text(POOR)
    done = subprocess.run(
        [sys.executable, "poor.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the engine fork is for the CPU on Linux or macOS; choose spawn\n"
