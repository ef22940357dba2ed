"""Ray with two nodes on this machine: the local engine's bits, also when a node dies. Not among the
ordinary tests, because a cluster takes seconds to start: `make test-federation`."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap import values
from fedmap.experiment import spread
from fedmap.experiment.progress import Progress
from fedmap.federation import Federation
from fedmap.own_code import take_files

# Loopback only; Ray reads this when it is imported.
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

# Ray leaves files and processes of its own to the garbage collector, which may come at any time.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
HERE = "127.0.0.1"
PATIENCE = 120.0  # seconds, for what takes one or two on a quiet machine
SMALL: dict[str, Any] = {"net": "mlp", "rounds": 2, "fraction": 0.5, "epochs": 1}


def family(pid: int) -> Iterator[int]:
    """All processes that descend from one."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text().split()):
                yield child
                yield from family(child)


def birth(pid: int) -> str:
    """When a process began; nothing where there is none, or only its body."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""


def wait_for(what: Callable[[], bool]) -> bool:
    """Does it come true within a time that is always enough?"""
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class Processes:
    """The processes of a Ray, to see that all of them end."""

    def __init__(self, pids: set[int]) -> None:
        self.born: dict[int, str] = {}
        self.also(pids)

    def also(self, pids: set[int]) -> None:
        self.born |= {pid: birth(pid) for pid in pids if not self.born.get(pid)}

    @property
    def alive(self) -> list[int]:
        return [pid for pid, born in self.born.items() if born and birth(pid) == born]

    def end(self) -> list[int]:
        """Those that do not end of themselves are killed, by their numbers."""
        wait_for(lambda: not self.alive)
        left = self.alive
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


class TwoNodes:
    """A cluster of a head without cores and two nodes with one core each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.others = set(family(os.getpid()))
        self.processes = Processes(set())
        self.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "node_ip_address": HERE}
        )
        self.address = str(self.cluster.address)
        self.nodes: list[Any] = []

    def complete(self) -> None:
        """Have two nodes, also after one was killed; and the head knows it."""
        for node in [node for node in self.nodes if not node.remaining_processes_alive()]:
            self.cluster.remove_node(node, allow_graceful=False)
            self.nodes.remove(node)
        while len(self.nodes) < 2:
            self.nodes.append(self.cluster.add_node(num_cpus=1, node_ip_address=HERE, wait=False))
        self.cluster.wait_for_nodes(PATIENCE)
        self.processes.also(set(family(os.getpid())) - self.others)

    def close(self) -> None:
        """End it, and see that nothing is left."""
        self.processes.also(set(family(os.getpid())) - self.others)
        self.cluster.shutdown()
        left = self.processes.end()
        assert not left, f"Ray left the processes {left}"
        with socket.socket() as port:
            port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            port.bind((HERE, int(self.address.rpartition(":")[2])))


@pytest.fixture(scope="module")
def cluster() -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    try:
        yield nodes
    finally:
        nodes.close()


@pytest.fixture
def address(cluster: TwoNodes) -> str:
    cluster.complete()
    return cluster.address


@pytest.fixture(scope="module")
def federation() -> Federation:
    return fedmap.partition(fedmap.load("synthetic"), 8, seed=0)


def bits(folder: Path) -> dict[str, Any]:
    """All that a finished run has left, without what a clock says, where it was run, and what its
    method is called."""

    def content(path: Path) -> bytes:
        tensors = path.suffix == ".safetensors"
        return values.save(values.load(path)) if tensors else path.read_bytes()

    found: dict[str, Any] = {
        path.relative_to(folder).as_posix(): content(path)
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("run.toml", "rounds.jsonl", "done")
    }
    rounds = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return found | {"rounds": [record | {"seconds": 0} for record in rounds]}


@pytest.mark.parametrize("method", ["fedavg", "map", "scaffold"])
def test_two_nodes_give_the_bits_of_the_local_engine(
    method: str, address: str, federation: Federation, tmp_path: Path
) -> None:
    fedmap.run(method, federation, **SMALL, out=tmp_path / "here")
    fedmap.run(method, federation, **SMALL, out=tmp_path / "there", ray_address=address)
    assert bits(tmp_path / "there") == bits(tmp_path / "here")


# A node's processes are children of its raylet: when that is killed, the whole node is gone.
DEADLY = """
import os, signal
from pathlib import Path
from fedmap.methods import MAP
class Deadly(MAP):
    def local_round(self, client, down, state):
        if client.round == 2:
            try:
                Path({mark!r}).touch(exist_ok=False)
                os.kill(os.getppid(), signal.SIGKILL)
            except FileExistsError:
                pass
        return super().local_round(client, down, state)
"""


def test_a_node_that_dies_in_the_middle_of_a_round_changes_no_bit(
    address: str, federation: Federation, tmp_path: Path
) -> None:
    mark, out = tmp_path / "killed", tmp_path / "there"
    (tmp_path / "deadly.py").write_text(DEADLY.format(mark=str(mark)))
    method = f"{tmp_path}/deadly.py:Deadly"
    fedmap.run("map", federation, **SMALL, out=tmp_path / "here")
    fedmap.run(method, federation, **SMALL, out=out, ray_address=address)
    assert mark.exists()
    assert bits(out) == bits(tmp_path / "here")


TRAVELING = b"""
from fedmap.methods import FedRS
from fedmap.nets import NETS
class Traveling(FedRS): pass
def net(shape, classes): return NETS["mlp"](shape, classes)
"""


def test_a_method_and_a_net_in_a_file_that_no_node_has_travel_with_the_run(
    address: str, federation: Federation, tmp_path: Path
) -> None:
    file = Path("/nowhere/traveling.py").resolve()
    take_files({file: TRAVELING})
    own: dict[str, Any] = SMALL | {"net": f"{file}:net", "out": tmp_path / "there"}
    fedmap.run("fedrs", federation, **SMALL, out=tmp_path / "here")
    fedmap.run(f"{file}:Traveling", federation, **own, ray_address=address)
    assert bits(tmp_path / "there") == bits(tmp_path / "here")


def test_a_comparison_spreads_its_runs_and_goes_on_where_it_was_stopped(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(progress: Progress) -> None:
        if progress.step == 2:
            raise KeyboardInterrupt

    # a run comes back after each round
    monkeypatch.setattr(spread, "SECONDS", 0.0)
    monkeypatch.setattr(spread, "BYTES_A_SECOND", float("inf"))
    given = SMALL | {"data": "synthetic", "clients": 8, "rounds": 3}
    methods = ["fedavg", "map"]
    here = fedmap.compare(methods, out=tmp_path / "here", **given)
    on_ray = given | {"ray_address": address}
    with pytest.raises(KeyboardInterrupt):
        fedmap.compare(methods, out=tmp_path / "there", on_progress=stop, **on_ray)
    seen: list[Progress] = []
    fedmap.compare(methods, out=tmp_path / "there", on_progress=seen.append, **on_ray)
    assert len(seen) < 6  # what was done before the stop is not done again
    assert seen[-1].share == pytest.approx(1)
    for runs in here.runs.values():
        folder = tmp_path / "there" / runs[0].name
        assert 'engine = "local"' in (folder / "run.toml").read_text()  # a whole run on one node
        assert bits(folder) == bits(tmp_path / "here" / runs[0].name)


def test_a_run_that_is_killed_leaves_no_process_and_is_resumed_by_another_engine(
    federation: Federation, tmp_path: Path
) -> None:
    given = SMALL | {"rounds": 400}
    out = tmp_path / "killed"
    code = f"""
import fedmap
federation = fedmap.partition(fedmap.load("synthetic"), 8, seed=0)
fedmap.run("map", federation, **{given}, out={str(out)!r}, engine="ray", workers=2)
"""
    driver = subprocess.Popen([sys.executable, "-c", code])
    try:
        committed = out / "checkpoint/commit.json"
        assert wait_for(lambda: committed.exists() or driver.poll() is not None)
        processes = Processes(set(family(driver.pid)))
    finally:
        driver.kill()
        driver.wait()
    left = processes.end()
    assert not left, f"Ray left the processes {left}"
    done = json.loads(committed.read_text())["round"]
    # as many rounds more as are needed to see it
    rounds = done + 2
    for file in (out / "run.toml", out / "checkpoint/run.toml"):
        file.write_text(file.read_text().replace("rounds = 400", f"rounds = {rounds}"))
    again = given | {"rounds": rounds}
    fedmap.run("map", federation, **again, out=out, resume=True, engine="local")
    fedmap.run("map", federation, **again, out=tmp_path / "here")
    assert bits(out) == bits(tmp_path / "here")
