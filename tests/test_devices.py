import os
from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap
from fedmap import devices
from fedmap.cli import main
from fedmap.cli.parsing import cores, default_workers
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.random import seeded_torch
from fedmap.simulate import Result, Settings
from fedmap.simulate.settings import read_toml
from fedmap.values import Placed, number, on
from fedmap.vector import SGD


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count", lambda kind: {"cuda": 2}.get(kind, 0))


@pytest.fixture
def a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count", lambda kind: {"mps": 1}.get(kind, 0))


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "mps", "gpu", "cuda:", "meta", ""])
def test_a_device_that_is_not_there_is_refused_with_what_is(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "count", lambda kind: 0)
    with pytest.raises(FedmapError, match=f"^device is '{name}', but this machine has cpu; choose"):
        devices.require(name)


@pytest.mark.usefixtures("two_gpus")
def test_a_number_that_no_gpu_has_is_refused_and_the_others_are_not() -> None:
    for name in (None, "cuda", "cuda:0", "cuda:1"):
        devices.require(name)
    with pytest.raises(FedmapError, match="this machine has cpu, cuda:0, cuda:1; choose"):
        devices.require("cuda:2")


def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "count", lambda kind: 0)
    assert Settings.of({"device": "auto"}).device is None


@pytest.mark.usefixtures("two_gpus")
def test_auto_is_cuda_where_there_is_one() -> None:
    assert Settings.of({"device": "auto"}).device == "cuda"


@pytest.mark.usefixtures("a_mac")
def test_auto_is_mps_where_there_is_no_cuda() -> None:
    assert Settings.of({"device": "auto"}).device == "mps"


def test_a_folders_name_depends_on_the_kind_of_the_device_and_not_on_its_number() -> None:
    names = [Settings.of({"device": device}).name for device in (None, "cpu", "cuda", "cuda:1")]
    assert names[0] == names[1] == Settings.of({}).name
    assert names[2] == names[3] != names[0]


def test_a_run_is_not_resumed_on_another_kind_of_device(
    federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small: dict[str, Any] = {"net": "tiny", "rounds": 1, "epochs": 0.1, "out": tmp_path}
    fedmap.run("fedavg", federation, **small, device="cpu")
    assert read_toml(tmp_path / "run.toml")["device"] == "cpu"
    assert fedmap.run("fedavg", federation, **small).settings.device is None
    monkeypatch.setattr(devices, "require", lambda name: None)
    with pytest.raises(FedmapError, match="another run: its device is 'cpu', not 'mps'; choose"):
        fedmap.run("fedavg", federation, **small, resume=True, device="mps")


def test_a_gpus_run_is_read_where_there_is_none(federation: Federation, tmp_path: Path) -> None:
    fedmap.run("fedavg", federation, net="tiny", rounds=1, epochs=0.1, out=tmp_path)
    file = tmp_path / "run.toml"
    file.write_text(file.read_text().replace('device = "cpu"', 'device = "cuda"'))
    (tmp_path / "done").write_text("")  # without the checksum of what is changed here
    assert Result.read(tmp_path).settings.device == "cuda"


@pytest.mark.usefixtures("two_gpus")
def test_by_default_there_is_a_worker_for_each_core_or_for_each_gpu() -> None:
    assert default_workers(None) == default_workers("cpu") == cores()
    assert default_workers("cuda") == default_workers("auto") == 2
    assert default_workers("cuda:1") == 1


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("options", "workers"),
    [("--device cuda", 2), ("--device cuda:1", 1), ("gpu.toml", 2), ("gpu.toml --workers 3", 3)],
)
def test_a_run_has_a_worker_for_each_gpu(
    options: str, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Settings] = []
    monkeypatch.setattr("fedmap.cli.train.one_run", lambda run, *more, **how: found.append(run))
    monkeypatch.setattr("fedmap.cli.parsing.cores", lambda: 8)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpu.toml").write_text('device = "cuda"')
    main.app(["run", *options.split()], standalone_mode=False)
    assert found[0].workers == workers


@pytest.mark.usefixtures("two_gpus")
def test_workers_take_the_gpus_in_turn_unless_one_is_named() -> None:
    assert [devices.place("cuda", worker) for worker in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert {devices.place("cuda:1", worker) for worker in range(3)} == {"cuda:1"}
    assert devices.place(None, 1) is None


@pytest.mark.parametrize(
    ("settings", "platform", "engine"),
    [
        ({"workers": 2}, "linux", "fork"),
        ({"workers": 2}, "darwin", "spawn"),
        ({"workers": 2}, "win32", "spawn"),
        ({"workers": 2, "device": "cuda"}, "linux", "spawn"),
        ({"workers": 1, "device": "cuda"}, "linux", "local"),
        ({"workers": 2, "device": "cuda", "engine": "ray"}, "linux", "ray"),
    ],
)
def test_auto_is_the_engine_that_works_with_the_system_and_the_device(
    settings: dict[str, Any], platform: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    assert Settings(**settings).engine_name == engine


def test_torch_is_deterministic_while_a_device_is_in_force_and_as_before_afterwards() -> None:
    with devices.in_force(torch.device("mps")):
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.allow_tf32
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.allow_tf32


def test_on_the_cpu_nothing_is_changed() -> None:
    with devices.in_force(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_layers_of_another_device_draw_from_its_own_generator_which_is_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = torch.Generator().manual_seed(5)

    class Module:
        get_rng_state, set_rng_state = there.get_state, there.set_state
        manual_seed = there.manual_seed

    monkeypatch.setattr(torch, "get_device_module", lambda kind: Module)
    before = there.get_state()
    with seeded_torch(1, "layers", 2, kind="mps"):
        first = torch.rand(3, generator=there)
    assert torch.equal(there.get_state(), before)
    with seeded_torch(1, "layers", 2, kind="mps"):
        assert torch.equal(torch.rand(3, generator=there), first)


def test_values_go_to_a_device_and_plain_numbers_stay_on_the_cpu() -> None:
    values = {"model": torch.ones(3), "count": number(2)}
    moved = on(values, torch.device("meta"))
    assert {name: value.device.type for name, value in moved.items()} == {
        "model": "meta",
        "count": "cpu",
    }
    assert on(values, "cpu")["model"] is values["model"]


def test_placed_values_are_brought_one_by_one() -> None:
    placed = Placed({"model": torch.ones(3), "count": number(2)}, torch.device("meta"))
    assert placed["model"].is_meta
    assert int(placed["count"]) == 2
    assert list(placed) == ["model", "count"]
    assert len(placed) == 2


def test_a_step_where_no_fused_one_is_known_is_the_same_up_to_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    results = []
    for kinds in (("cpu",), ()):
        monkeypatch.setattr("fedmap.vector.FUSED", kinds)
        vector = torch.nn.Parameter(torch.arange(4.0))
        vector.grad = torch.tensor([1.0, -1.0, 2.0, 0.5])
        optimizer = SGD([vector], lr=0.1, momentum=0.9, weight_decay=0.01)
        for _ in range(3):
            optimizer.step()
        results.append(vector.detach())
    torch.testing.assert_close(*results)
