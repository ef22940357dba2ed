"""What `fedmap doctor` finds, and what it says of what is not there."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fedmap.cli import doctor

REQUIRES = [
    "torch>=2.6",
    "torch>=1; extra == 'there'",
    'no-such-package[x]>=1; extra == "lost"',
    "no-such-tool; extra == 'dev'",
]


def test_every_part_of_the_machine_is_named(fedmap: Callable[[str], tuple[int, str, str]]) -> None:
    code, out, _ = fedmap("doctor")
    assert code == 0
    for word in ("fedmap", "python", f"{torch.__version__}", "cores", "devices", "native kernels"):
        assert word in out
    for word in ("fashion-mini (built in)", "extra ray", "disk, here"):
        assert word in out


def test_an_extra_that_is_not_whole_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda name: REQUIRES)
    assert doctor.extras() == {"there": [], "lost": ["no-such-package"]}
    found = dict(doctor.findings())
    assert found["extra there"] == "yes"
    assert "pip install 'fedmap[lost]' (lacks no-such-package)" in found["extra lost"]


def test_the_room_of_a_folder_that_is_not_there_yet_is_its_parents(tmp_path: Path) -> None:
    assert "GB free in" in doctor.room(tmp_path / "not" / "there")


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert doctor.room(tmp_path).endswith("which cannot be written")


def test_a_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda k: f"Card {k}")
    assert "cuda:0 (Card 0)" in doctor.devices()
