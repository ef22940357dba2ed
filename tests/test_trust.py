"""A run's folder and a model's file are data: code that only they name is not run, whatever is done
with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

import fedmap
from fedmap import values
from fedmap.data import load
from fedmap.errors import FedmapError
from fedmap.federation import partition
from fedmap.simulate import Result
from fedmap.use.model import UsableModel

SMALL: dict[str, Any] = {"rounds": 1, "fraction": 1.0, "epochs": 0.1, "workers": 1}
FEW = "--rounds 1 --fraction 1 --epochs 0.1 --workers 1"
# Whoever runs this file leaves a trace.
EVIL = """
from pathlib import Path
Path(__file__).with_name("trace").write_text("")
from fedmap.methods import FedAvg
from fedmap.nets.mlp import MLPNet
class Evil(FedAvg):
    pass
class Net(MLPNet):
    pass
"""


class Folder:
    """A colleague's run, and what is in it."""

    def __init__(self, path: Path, evil: Path) -> None:
        self.path, self.evil = path, evil
        self.trace = evil.with_name("trace")
        self.toml = path / "run.toml"

    def names(self, setting: str, name: str) -> None:
        """From now on run.toml and every model's header name code in the evil file."""
        lines = self.toml.read_text().splitlines()
        old = [line for line in lines if not line.startswith(f"{setting} = ")]
        self.toml.write_text("\n".join([f'{setting} = "{self.evil}:{name}"', *old]) + "\n")
        (self.path / "done").write_text("")  # who forges a file forges its checksum too
        if setting not in ("method", "net"):
            return
        for file in self.path.rglob("*.safetensors"):
            notes = json.loads(values.load_notes(file)["fedmap"])
            notes[setting] = f"{self.evil}:{name}"
            save_file(load_file(file), file, {"fedmap": json.dumps(notes)})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A finished run, and a file of somebody's."""
    (tmp_path / "evil.py").write_text(EVIL)
    rng = np.random.default_rng(0)
    y = np.array([f"class {k % 4}" for k in range(20)])
    for name in ("sites/a", "sites/b", "newcomer/c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.savez(tmp_path / f"{name}.npz", x=rng.random((20, 6), np.float32), y=y)
    np.savez(tmp_path / "new.npz", x=rng.random((4, 6), np.float32))
    federation = partition(load(f"npz:{tmp_path}/sites"))
    fedmap.run("fedavg", federation, net="mlp", out=tmp_path / "run", **SMALL)
    return Folder(tmp_path / "run", tmp_path / "evil.py")


COMMANDS = {
    "resume": "resume run --rounds 2",
    "run": "run run/run.toml --out again",
    "predict": "predict run new.npz --client 0",
    "export": "export run -o model.pt2 --format torch-export --client 0",
    "adapt": "adapt run --data npz:newcomer -o adapted",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("setting", "name"), [("method", "Evil"), ("net", "Net")])
def test_a_command_does_not_run_code_that_only_a_folder_names(
    command: str, setting: str, name: str, folder: Folder, fedmap: Callable[[str], Any]
) -> None:
    folder.names(setting, name)
    done = fedmap(COMMANDS[command])
    assert not folder.trace.exists()
    assert done.returncode == 1
    sentence = " ".join(done.stderr.split())
    assert f"names {setting} {folder.evil}:{name}," in sentence
    assert "it is not run, because you did not name it" in sentence
    assert "--trust" in sentence


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("setting", "name"), [("method", "Evil"), ("net", "Net")])
def test_a_command_runs_it_where_the_user_trusts_the_folder(
    command: str, setting: str, name: str, folder: Folder, fedmap: Callable[[str], Any]
) -> None:
    folder.names(setting, name)
    done = fedmap(f"{COMMANDS[command]} --trust")
    assert done.returncode == 0, done.stderr
    assert folder.trace.exists()


@pytest.mark.parametrize("command", ["run", "predict", "export", "adapt"])
def test_a_command_runs_the_file_that_the_user_names(
    command: str, folder: Folder, fedmap: Callable[[str], Any]
) -> None:
    folder.names("method", "Evil")
    folder.names("net", "Net")
    done = fedmap(f"{COMMANDS[command]} --method ./evil.py:Evil")  # the net is in the same file
    assert done.returncode == 0, done.stderr
    assert folder.trace.exists()


def test_another_file_of_the_same_name_is_not_the_file_that_the_user_named(
    folder: Folder, fedmap: Callable[[str], Any]
) -> None:
    folder.names("net", "Net")
    good = folder.evil.parent / "good"
    good.mkdir()
    (good / "evil.py").write_text("from fedmap.methods import FedAvg\nclass Mine(FedAvg): pass\n")
    done = fedmap("predict run new.npz --client 0 --method good/evil.py:Mine")
    assert done.returncode == 1
    assert not folder.trace.exists()


@pytest.mark.parametrize(("setting", "name"), [("data", "load"), ("partition", "draw")])
@pytest.mark.parametrize("command", ["resume run --rounds 2", "run run/run.toml --out again"])
def test_code_for_data_and_partitions_is_not_run_either(
    command: str, setting: str, name: str, folder: Folder, fedmap: Callable[[str], Any]
) -> None:
    folder.names(setting, name)
    done = fedmap(command)
    assert not folder.trace.exists()
    assert f"names {setting} {folder.evil}:{name}," in " ".join(done.stderr.split())


def test_a_card_is_written_and_a_table_is_read_without_running_anything(
    folder: Folder, fedmap: Callable[[str], Any]
) -> None:
    folder.names("method", "Evil")
    folder.names("net", "Net")
    assert "# Evil on" in fedmap("card run").stdout
    assert Result.read(folder.path).final["rounds"] == 1
    assert not folder.trace.exists()


def test_the_models_of_a_result_need_trust_or_the_name_of_the_file(folder: Folder) -> None:
    folder.names("method", "Evil")
    folder.names("net", "Net")
    result = Result.read(folder.path)
    with pytest.raises(FedmapError, match=rf"names method {folder.evil}:Evil, .*trust=True"):
        result.personal_model(0)
    with pytest.raises(FedmapError, match=rf"names \w+ {folder.evil}"):
        _ = result.global_model
    assert not folder.trace.exists()
    for given in ({"trust": True}, {"method": f"{folder.evil}:Evil"}):
        assert Result.read(folder.path, **given).global_model is not None
    assert folder.trace.exists()


def test_a_models_header_is_not_a_reason_to_run_code(folder: Folder) -> None:
    folder.names("method", "Evil")
    personal, of_all = (
        folder.path / "personal/a.safetensors",
        folder.path / "global.safetensors",
    )
    with pytest.raises(FedmapError, match=f"names method {folder.evil}:Evil"):
        UsableModel.read(personal)
    assert UsableModel.read(of_all).notes.method.endswith("Evil")  # it needs no method
    folder.names("net", "Net")
    with pytest.raises(FedmapError, match=f"names net {folder.evil}:Net"):
        UsableModel.read(of_all)
    assert not folder.trace.exists()
    assert UsableModel.read(personal, trust=True).logits(torch.zeros(1, 6)).shape == (1, 4)


def test_a_run_into_a_folder_does_not_run_what_the_folder_names(folder: Folder) -> None:
    folder.names("method", "Evil")
    federation = partition(load(f"npz:{folder.path.parent}/sites"))
    with pytest.raises(FedmapError, match="holds another run: its method is"):
        fedmap.run("fedavg", federation, net="mlp", out=folder.path, resume=True, **SMALL)
    assert not folder.trace.exists()


def test_a_comparison_over_forged_folders_runs_only_its_own_methods(folder: Folder) -> None:
    settings: dict[str, Any] = {"data": f"npz:{folder.path.parent}/sites", "net": "mlp"} | SMALL
    out = folder.path.parent / "compared"
    first = fedmap.compare(["fedavg"], out=out, **settings)
    forged = Folder(next(iter(first.results.values()))[0].folder, folder.evil)
    forged.names("method", "Evil")
    again = fedmap.compare(["fedavg"], out=out, **settings)
    again.table()
    assert again.results["fedavg"][0].personal_model(0) is not None
    assert not folder.trace.exists()


# A file that is named, but is no longer what it was.


def test_a_run_is_resumed_with_the_same_source_only(
    folder: Folder, fedmap: Callable[[str], Any]
) -> None:
    run = f"run --method evil.py:Evil --net evil.py:Net --data npz:sites {FEW}"
    assert fedmap(f"{run} --out own").returncode == 0
    assert "[code]" in (folder.evil.parent / "own/run.toml").read_text()
    assert fedmap("resume own --rounds 2 --trust").returncode == 0
    folder.evil.write_text(EVIL + "# changed\n")
    done = fedmap("resume own --rounds 3 --trust")
    assert done.returncode == 1
    sentence = " ".join(done.stderr.split())
    assert f"the file of method {folder.evil}:Evil changed" in sentence
    again = fedmap("run own/run.toml --out again --trust")
    assert "remove the table [code]" in " ".join(again.stderr.split())
    other = fedmap("run own/run.toml --out again --method fedavg --net mlp")
    assert other.returncode == 0, other.stderr
