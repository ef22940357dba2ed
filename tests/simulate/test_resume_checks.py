"""A run goes on only where it gives the numbers of one that was never stopped."""

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap as library
from fedmap.data import synthetic
from fedmap.federation import Federation, partition
from fedmap.simulate import same

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "fraction": 0.5, "epochs": 1, "batch": 20}


class StopError(Exception):
    pass


def stop(record: dict[str, Any]) -> None:
    raise StopError


def begun(federation: Federation, out: Path) -> None:
    with pytest.raises(StopError):
        library.run("fedavg", federation, out=out, on_round=stop, **SMALL)


def test_settings_that_were_changed_in_run_toml_are_refused_with_what_changed(
    fedmap: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = "--data synthetic --net mlp --clients 4 --epochs 0.5 --workers 1 --quiet --rounds 2"
    monkeypatch.setattr("fedmap.cli.train.by_round", lambda on_step: stop)
    with pytest.raises(StopError):
        fedmap(f"run {small} --lr 0.1 --out out")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "out/run.toml"
    path.write_text(path.read_text().replace("\nlr = 0.1\n", "\nlr = 0.2\n"))
    refused = fedmap("resume out --quiet")
    assert refused.returncode == 1
    assert "out holds another run: its lr is 0.1, not 0.2" in refused.stderr
    path.write_text(path.read_text().replace("\nlr = 0.2\n", "\nlr = 0.1\n"))
    assert fedmap("resume out --quiet").returncode == 0


@pytest.mark.parametrize("part", ["train_x", "test_x"])
def test_other_samples_with_the_same_labels_are_refused(part: str, tmp_path: Path) -> None:
    """Of a dataset with a name, whose samples are not all looked at."""
    dataset = synthetic(classes=4, train=5000, test=5000, shape=(6,))
    begun(partition(dataset, 6), tmp_path / "run")
    other = replace(dataset, **{part: getattr(dataset, part) + 1})
    with pytest.raises(library.FedmapError, match="the values of the samples changed"):
        library.run("fedavg", partition(other, 6), out=tmp_path / "run", resume=True, **SMALL)


@pytest.mark.parametrize(
    ("place", "name", "sentence"),
    [
        (platform, "python_version", "python was .* and is 0.0.0"),
        (torch.backends.cpu, "get_cpu_capability", "instructions was .* and is 0.0.0"),
    ],
)
def test_other_versions_and_another_processor_are_refused_but_for_who_wants_it_anyway(
    place: Any,
    name: str,
    sentence: str,
    federation: Federation,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    begun(federation, out)
    monkeypatch.setattr(place, name, lambda: "0.0.0")
    with pytest.raises(library.FedmapError, match=f"{sentence}; go on all the same with: fedmap"):
        library.run("fedavg", federation, out=out, resume=True, **SMALL)
    result = library.run("fedavg", federation, out=out, resume=True, anyway=True, **SMALL)
    assert "and is 0.0.0" in result.rounds[1]["note"]
    assert "and is 0.0.0" in capsys.readouterr().err


def test_anyway_is_no_word_for_other_settings_or_samples(
    federation: Federation, tmp_path: Path
) -> None:
    begun(federation, tmp_path / "run")
    with pytest.raises(library.FedmapError, match="holds another run: its lr is"):
        library.run(
            "fedavg", federation, out=tmp_path / "run", resume=True, anyway=True, lr=0.5, **SMALL
        )


def test_the_command_has_anyway(
    fedmap: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = "--data synthetic --net mlp --clients 4 --epochs 0.5 --workers 1 --quiet"
    assert fedmap(f"run {small} --rounds 1 --method fedavg --out out").returncode == 0
    monkeypatch.setattr(same, "machine", lambda: {"versions": {"torch": "9"}})
    refused = fedmap("resume out --rounds 2 --quiet")
    assert "torch was" in refused.stderr
    assert fedmap("resume out --rounds 2 --quiet --anyway").returncode == 0
