"""A finished run is read with care: what is damaged is said, and never a traceback."""

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies as st

import fedmap
from fedmap.federation import Federation
from fedmap.simulate import Result
from fedmap.simulate.settings import to_toml
from fedmap.use.find import model_file

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "fraction": 0.5, "epochs": 1, "batch": 20}
NAMES = ["run.toml", "rounds.jsonl", "final.json", "global.safetensors"]
MODEL = "personal/00001.safetensors"


@pytest.fixture
def run(federation: Federation, tmp_path: Path) -> Path:
    fedmap.run("fedavg", federation, out=tmp_path / "run", **SMALL)
    return tmp_path / "run"


def read_all(path: Path) -> None:
    """All that reads a finished run."""
    result = Result.read(path)
    assert result.global_model is not None
    result.personal_model(1)(torch.zeros(1, 6))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("damage", [flip, cut, os.unlink])
@pytest.mark.parametrize("name", [*NAMES, MODEL])
def test_a_damaged_file_of_a_finished_run_is_told(
    name: str, damage: Callable[[Path], None], run: Path
) -> None:
    read_all(run)
    damage(run / name)
    if damage is os.unlink and name == "global.safetensors":
        assert Result.read(run).global_model is None  # as of a method without one
        return
    sentence = "is missing|is not a run folder" if damage is os.unlink else "is damaged or was"
    with pytest.raises(fedmap.FedmapError, match=sentence):
        read_all(run)


@pytest.mark.parametrize("damage", [cut, lambda path: os.truncate(path, 0)])
@pytest.mark.parametrize("name", [*NAMES, MODEL])
def test_a_file_that_is_cut_off_is_told_where_an_older_run_has_no_checksums(
    name: str, damage: Callable[[Path], None], run: Path
) -> None:
    (run / "done").write_text("")
    damage(run / name)
    if (name, damage) == ("run.toml", cut):  # it may end anywhere and still be TOML
        (run / name).write_text("lr = ")
    with pytest.raises(fedmap.FedmapError, match=Path(name).name.replace("run.toml", "run")):
        read_all(run)


@pytest.mark.parametrize("client", [None, "1"])
def test_a_model_that_is_asked_or_exported_is_checked_first(client: str | None, run: Path) -> None:
    file = model_file(run, client)
    flip(file)
    with pytest.raises(fedmap.FedmapError, match=f"{file} is damaged or was changed"):
        model_file(run, client)


def test_a_list_of_checksums_that_is_damaged_is_told(run: Path) -> None:
    (run / "done").write_text('{"run.toml": 1')
    with pytest.raises(fedmap.FedmapError, match="done is damaged"):
        Result.read(run)


TEXT = st.text(max_size=20)


@hypothesis.given(classes=st.lists(TEXT, max_size=5), clients=st.lists(TEXT, max_size=5))
@hypothesis.example(["😀", "\U0010ffff", "\x7f\x00\r\n\\\"'"], ["日本"])
def test_any_names_of_classes_and_clients_come_back_from_toml(
    classes: list[str], clients: list[str]
) -> None:
    given = {"lr": 0.1, "size": None, "federation": {"classes": classes, "clients": clients}}
    found = tomllib.loads(to_toml(given))
    assert found == {"lr": 0.1, "federation": {"classes": classes, "clients": clients}}


def test_a_run_with_an_emoji_for_a_class_a_client_and_a_folder_is_read_and_resumed(
    tmp_path: Path,
) -> None:
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    federation = Federation.from_arrays({"🦊": (x, y), "oslo": (x, y)}, classes=["😀", "𝔄"])
    out = tmp_path / "läufe 🏃"
    fedmap.run("fedavg", federation, out=out, **SMALL)
    assert list(Result.read(out).final["global_accuracy_per_class"]) == ["😀", "𝔄"]
    more = fedmap.run("fedavg", federation, out=out, resume=True, **SMALL | {"rounds": 3})
    assert more.final["client_names"] == ["🦊", "oslo"]
