"""The engine on Ray and what belongs to it, without a Ray cluster: sentences, what travels, and who
gets which task. tests/federation has the rest."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import fedmap
from fedmap.errors import DivergenceError, FedmapError
from fedmap.experiment import spread
from fedmap.experiment.runs import RunWork
from fedmap.federation import Federation
from fedmap.methods import find_method
from fedmap.own_code import code_files, take_files
from fedmap.simulate import cluster
from fedmap.simulate.engines import ENGINES
from fedmap.simulate.engines import ray as engine_module
from fedmap.simulate.settings import Settings
from fedmap.simulate.store import FileStore
from fedmap.simulate.tasks import Setup
from fedmap.values import ALIGNMENT

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "fraction": 1.0, "epochs": 1}


def numbers(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without what a clock says."""
    return [
        {name: value for name, value in record.items() if name != "seconds"} for record in rounds
    ]


# Sentences.


def test_ray_is_an_engine_and_is_not_imported_before_it_is_asked_for() -> None:
    code = (
        "import fedmap.simulate.engines as e, sys; print('ray' in e.ENGINES, 'ray' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]


def test_without_ray_there_is_a_sentence_that_says_how_to_install_it(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(FedmapError, match=r"pip install 'fedmap\[ray\]'"):
        fedmap.run("fedavg", federation, **SMALL, engine="ray")


@pytest.mark.parametrize("address", ["ray://head:10001", "head", ":6379", "head:port", "head:1/2"])
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with (
        pytest.raises(FedmapError, match=r"give HOST:PORT .* or auto"),
        cluster.connected(address, 1),
    ):
        pass


def test_an_address_where_nobody_listens_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with (
        pytest.raises(FedmapError, match=f"no Ray cluster answers at 127.0.0.1:{port}: .*refused"),
        cluster.connected(f"127.0.0.1:{port}", 1),
    ):
        pass


def test_an_address_that_takes_calls_and_says_nothing_is_given_up_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "SECONDS_TO_ANSWER", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(FedmapError, match=f"no Ray cluster answers at {address}: timed out"),
            cluster.connected(address, 1),
        ):
            pass


def test_a_node_with_another_version_is_named_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.2")
    monkeypatch.setattr(cluster, "the_ray", lambda: SimpleNamespace(util=util))
    here = cluster.versions()
    sentence = rf"Ray node 10.0.0.2: torch is {here['torch']} there and 1.0 at the driver"
    with (
        pytest.raises(FedmapError, match=sentence.replace("+", r"\+")),
        cluster.named_node(),
    ):
        cluster.require_versions(here | {"torch": "1.0"})


def test_a_node_with_the_drivers_versions_is_taken() -> None:
    cluster.require_versions(cluster.versions())


def test_a_node_without_native_kernels_says_so(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    util = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.2")
    monkeypatch.setattr(cluster, "the_ray", lambda: SimpleNamespace(util=util))
    monkeypatch.setattr("fedmap.kernels._load", lambda: (None, "there is no compiler"))
    settings = Settings.of(SMALL | {"method": "fedavg", "kernels": "native"})
    sentence = engine_module.Worker().begin(
        cluster.versions(), settings, {}, cluster.pack(federation)
    )
    assert sentence.startswith("Ray node 10.0.0.2: kernels = 'native', but there are none")


def test_workers_that_die_again_and_again_end_the_run_with_a_sentence() -> None:
    deaths = cluster.Deaths()
    for _ in range(cluster.MOST_DEATHS - 1):
        deaths.one_more(ValueError("gone"))
    with pytest.raises(FedmapError, match=r"lost 5 workers one after the other.*gone"):
        deaths.one_more(ValueError("gone"))


def test_deaths_with_work_done_in_between_do_not_end_the_run() -> None:
    deaths = cluster.Deaths()
    for _ in range(3 * cluster.MOST_DEATHS):
        deaths.one_more(ValueError("gone"))
        deaths.progress()


# Settings.


def test_auto_with_an_address_is_ray() -> None:
    assert Settings(ray_address="auto").engine_name == "ray"
    assert Settings(ray_address="auto", engine="local").engine_name == "local"


def test_an_address_changes_no_folder() -> None:
    assert Settings(ray_address="auto", engine="ray").name == Settings().name


def test_a_cluster_is_used_whole_and_a_local_ray_as_far_as_the_workers() -> None:
    ray: Any = SimpleNamespace(cluster_resources=lambda: {"CPU": 64.0})
    assert cluster.places(ray, "auto", 2) == 64
    assert cluster.places(ray, None, 2) == 2


def test_a_cluster_without_cores_is_refused() -> None:
    ray: Any = SimpleNamespace(cluster_resources=dict)
    with pytest.raises(FedmapError, match="the Ray cluster at auto has no cores"):
        cluster.places(ray, "auto", 2)


def test_of_a_cluster_with_gpus_there_is_a_place_for_each_and_a_local_ray_shares_them() -> None:
    ray: Any = SimpleNamespace(cluster_resources=lambda: {"CPU": 64.0, "GPU": 4.0})
    assert cluster.places(ray, "auto", 2, "cuda") == 4
    assert cluster.share_of_gpus(ray, "cuda", 4) == {"num_gpus": 1}
    assert cluster.share_of_gpus(ray, "cuda", 8) == {"num_gpus": 0.5}
    assert cluster.share_of_gpus(ray, "cuda", 3) == {"num_gpus": 1}
    assert cluster.share_of_gpus(ray, None, 4) == {}


def test_a_ray_without_gpus_is_refused_where_they_are_the_device() -> None:
    ray: Any = SimpleNamespace(cluster_resources=lambda: {"CPU": 64.0})
    with pytest.raises(FedmapError, match="the Ray cluster at auto has no GPUs"):
        cluster.places(ray, "auto", 2, "cuda")
    with pytest.raises(FedmapError, match="device is 'cuda', but Ray has found no GPU"):
        cluster.share_of_gpus(ray, "cuda", 2)


# What travels.

VALUES = {
    "vector": torch.randn(100),
    "number": torch.tensor(3),
    "flags": torch.tensor([True, False]),
    "half": torch.randn(7).bfloat16(),
    "none": torch.empty(0, 3),
    "turned": torch.arange(12).view(3, 4).T,
}


def test_tensors_of_any_kind_come_back_as_they_were() -> None:
    data, arrays = cluster.pack({"there": [VALUES]})
    for array in arrays:
        array.flags.writeable = False  # as Ray gives them
    back = cluster.unpack((data, arrays))["there"][0]
    assert list(back) == list(VALUES)
    for name, tensor in VALUES.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def test_tensors_lie_as_the_allocator_would_lay_them() -> None:
    data, (array,) = cluster.pack(torch.arange(10.0))
    room = np.zeros(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT + 4
    room[start : start + array.nbytes] = array
    moved = cluster.unpack((data, [room[start : start + array.nbytes]]))
    assert moved.data_ptr() % ALIGNMENT == 0
    assert torch.equal(moved, torch.arange(10.0))


def test_a_federation_travels_beside_a_short_pickle(federation: Federation) -> None:
    data, arrays = cluster.pack(federation)
    assert len(data) < 5000
    back = cluster.unpack((data, arrays))
    assert torch.equal(back.client(3).train[0], federation.client(3).train[0])
    assert back.origin == federation.origin


def test_a_method_of_a_file_that_this_machine_lacks_is_found_once_it_was_sent() -> None:
    name = "/nowhere/sent.py:Sent"
    with pytest.raises(FedmapError, match=r"there is no file /nowhere/sent.py"):
        find_method(name)
    file = Path(name.rpartition(":")[0]).resolve()
    take_files({file: b"from fedmap.methods import FedRS\nclass Sent(FedRS): pass\n"})
    assert find_method(name).__name__ == "Sent"


def test_only_a_method_in_a_file_has_something_to_send(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("text")
    assert code_files(f"{tmp_path}/own.py:Own", "mlp", None) == {tmp_path / "own.py": b"text"}


# Who gets which task: the engine with a Ray that does everything in this process.


class LostError(Exception):
    """A worker that died."""


class FakeRay:
    """As much of Ray as the engine needs. A call is done when its answer is fetched; `dies` says of
    each call of `do`, by its number from 0, whether its worker dies of it."""

    exceptions = SimpleNamespace(RayError=LostError, RayTaskError=KeyError)

    def __init__(self, dies: Callable[[int], bool] = lambda call: False, cores: int = 2) -> None:
        self.dies = dies
        self.cores = cores
        self.calls: list[list[int]] = []  # the keys of each call of `do`
        self.dead: list[Any] = []

    def put(self, thing: Any) -> Any:
        return thing

    def remote(self, **options: Any) -> Callable[[type], Any]:
        return lambda kind: SimpleNamespace(remote=lambda: FakeWorker(self, kind()))

    def wait(self, calls: list[Any], timeout: float | None) -> tuple[list[Any], list[Any]]:
        return calls[-1:] if self.cores else [], []  # workers that start are answered first

    def get(self, call: Any) -> Any:
        return call()

    def kill(self, worker: Any) -> None:
        self.dead.append(worker)

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cores}

    available_resources = cluster_resources


class FakeWorker:
    def __init__(self, ray: FakeRay, worker: engine_module.Worker) -> None:
        self.begin = SimpleNamespace(remote=lambda *given: lambda: worker.begin(*given))
        self.do = SimpleNamespace(remote=lambda *given: self.call(ray, worker, *given))

    def call(self, ray: FakeRay, worker: engine_module.Worker, *given: Any) -> Callable[[], Any]:
        number = len(ray.calls)
        ray.calls.append(given[2])

        def answer() -> Any:
            if self in ray.dead or ray.dies(number):
                raise LostError(f"call {number}")
            return worker.do(*given)

        return answer


@pytest.fixture
def with_ray(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeRay], FakeRay]:
    def use(ray: FakeRay) -> FakeRay:
        @contextmanager
        def connected(address: str | None, cores: int) -> Iterator[FakeRay]:
            yield ray

        monkeypatch.setattr(engine_module, "connected", connected)
        return ray

    return use


def on_ray(method: str, federation: Federation, **more: Any) -> fedmap.Result:
    return fedmap.run(method, federation, **SMALL | more, engine="ray", workers=2)


@pytest.mark.parametrize("method", ["fedavg", "map", "scaffold"])
def test_the_numbers_are_those_of_the_local_engine(
    method: str, federation: Federation, with_ray: Callable[[FakeRay], FakeRay]
) -> None:
    with_ray(FakeRay())
    here = fedmap.run(method, federation, **SMALL)
    there = on_ray(method, federation)
    assert numbers(there.rounds) == numbers(here.rounds)
    assert there.final == here.final


def test_what_a_dead_worker_had_is_done_again_to_the_same_numbers(
    federation: Federation, with_ray: Callable[[FakeRay], FakeRay]
) -> None:
    ray = with_ray(FakeRay(dies=lambda call: call % 3 == 1))
    there = on_ray("map", federation)
    assert len(ray.dead) > 2
    assert numbers(there.rounds) == numbers(fedmap.run("map", federation, **SMALL).rounds)


def test_a_call_that_kills_every_worker_ends_the_run(
    federation: Federation, with_ray: Callable[[FakeRay], FakeRay]
) -> None:
    with_ray(FakeRay(dies=lambda call: True))
    with pytest.raises(FedmapError, match="lost 5 workers one after the other"):
        on_ray("map", federation)


def test_a_cluster_without_a_free_core_is_given_up(
    federation: Federation, with_ray: Callable[[FakeRay], FakeRay]
) -> None:
    with_ray(FakeRay(cores=0))
    with pytest.raises(FedmapError, match=r"no worker could be started .* 0 are free"):
        on_ray("map", federation)


def test_the_longest_clients_come_first_several_in_a_call_and_the_last_ones_alone(
    with_ray: Callable[[FakeRay], FakeRay],
) -> None:
    data = fedmap.data.synthetic(classes=4, train=400, test=80, shape=(6,))
    crowd = fedmap.partition(data, 20, kind="dirichlet", alpha=0.5)
    ray = with_ray(FakeRay())
    setup = Setup(Settings.of(SMALL | {"method": "fedavg", "engine": "ray", "workers": 2}), crowd)
    engine = ENGINES["ray"](setup, FileStore({}, 20))
    state = setup.method.start(setup.initial)
    engine.map("train", 1, range(20), setup.method.download(state))
    engine.close()
    samples = crowd.counts.sum(1).tolist()
    given = [samples[key] for call in ray.calls for key in call]
    assert given == sorted(samples, reverse=True)
    assert len(ray.calls[0]) > 1
    assert [len(call) for call in ray.calls[-3:]] == [1, 1, 1]


OWN = """
from fedmap.errors import DivergenceError, FedmapError
from fedmap.methods import FedAvg
class Own(FedAvg):
    def local_round(self, client, down, state):
        if client.number == 3:
            raise {}
        return super().local_round(client, down, state)
"""


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        ("ValueError('wrong')", FedmapError, "client 3 failed in round 1:\nTraceback.*wrong"),
        ("FedmapError('plain')", FedmapError, "^plain$"),
        ("DivergenceError('far')", DivergenceError, "^far$"),
    ],
)
def test_an_error_of_a_client_arrives_as_from_the_pool(
    error: str,
    kind: type[Exception],
    sentence: str,
    federation: Federation,
    with_ray: Callable[[FakeRay], FakeRay],
    tmp_path: Path,
) -> None:
    with_ray(FakeRay())
    (tmp_path / "own.py").write_text(OWN.format(error))
    for engine in ("ray", "fork"):
        with pytest.raises(kind, match=f"(?s){sentence}"):
            fedmap.run(f"{tmp_path}/own.py:Own", federation, **SMALL, engine=engine, workers=2)


# Whole runs, part by part.


def in_parts(run: RunWork, federation: Federation, root: Path) -> list[tuple[int, str]]:
    """A run that travels after each round; what was shown of it."""
    shown: list[tuple[int, str]] = []
    traveler = spread.Traveler(run, root, lambda step, now: shown.append((step, now)))
    while not traveler.home:
        kind, files = spread.go_on(
            cluster.versions(), run.resolved, {}, cluster.pack(federation), traveler.files(), 0.0
        )
        assert kind == "done", files
        traveler.take(files)
    traveler.unlock()
    return shown


def piece(federation: Federation, **more: Any) -> RunWork:
    settings = Settings.of(SMALL | {"rounds": 3, "method": "map"} | more)
    return RunWork(settings, federation=federation)


def test_a_run_in_parts_is_the_whole_run(federation: Federation, tmp_path: Path) -> None:
    run = piece(federation)
    shown = in_parts(run, federation, tmp_path / "parts")
    run.go(tmp_path / "whole", lambda step, now: None)
    parts, whole = (run.result(tmp_path / name) for name in ("parts", "whole"))
    assert [step for step, _ in shown] == [1, 2, 3]
    assert numbers(parts.rounds) == numbers(whole.rounds)
    assert parts.final == whole.final
    kept = [
        sorted(path.relative_to(folder) for path in folder.rglob("*"))
        for folder in (tmp_path / "parts", tmp_path / "whole")
    ]
    assert kept[0] == kept[1]


def test_a_run_killed_while_its_files_are_replaced_goes_on_to_the_same_numbers(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, replace = piece(federation), os.replace
    left = iter([True] * 6)  # more than the files of one part, fewer than those of two

    def killed(old: Path, new: Path) -> None:
        if "new" in Path(old).parts and not next(left, False):
            raise KeyboardInterrupt
        replace(old, new)

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        in_parts(run, federation, tmp_path / "parts")
    monkeypatch.undo()
    (folder,) = (tmp_path / "parts").iterdir()
    assert (folder / "checkpoint/new").exists()
    run.go(tmp_path / "parts", lambda step, now: None)
    run.go(tmp_path / "whole", lambda step, now: None)
    parts, whole = (run.result(tmp_path / name) for name in ("parts", "whole"))
    assert numbers(parts.rounds) == numbers(whole.rounds)
    assert parts.final == whole.final


def test_a_run_that_diverges_on_a_node_is_known_as_diverged(
    federation: Federation, tmp_path: Path
) -> None:
    run = piece(federation, lr=1e30)
    shown = in_parts(run, federation, tmp_path)
    assert shown[-1] == (3, "diverged")
    assert run.diverged(tmp_path)


def test_nobody_else_works_in_the_folder_of_a_run_under_way(
    federation: Federation, tmp_path: Path
) -> None:
    run = piece(federation)
    traveler = spread.Traveler(run, tmp_path, lambda step, now: None)
    traveler.files()
    code = f"""
from pathlib import Path
from fedmap.simulate.folder import RunFolder
with RunFolder(Path({str(tmp_path / run.name)!r})).locked(): pass
"""
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    traveler.unlock()
    assert "another process works in" in other.stderr
    shutil.rmtree(tmp_path / run.name)
