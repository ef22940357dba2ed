"""Settings: which defaults are used for which data, and how own data is named in them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmap
from fedmap.data import FORMATS, Defaults, read_npz, register_format
from fedmap.simulate.settings import Settings


def write_sites(folder: Path, sites: int = 3, samples: int = 20, features: int = 4) -> Path:
    """Tables of two classes, one file for each site."""
    for site in range(sites):
        rng = np.random.default_rng(site)
        y = np.arange(samples) % 2
        x = rng.standard_normal((samples, features)) + y[:, None]
        folder.mkdir(exist_ok=True)
        np.savez(folder / f"site{site}.npz", x=x.astype(np.float32), y=y)
    return folder


def test_own_data_trains_all_clients_for_its_readers_rounds(tmp_path: Path) -> None:
    settings = Settings.of({"data": f"npz:{write_sites(tmp_path)}"})
    assert (settings.fraction, settings.rounds, settings.batch) == (1.0, 50, 32)


def test_arrays_from_python_train_all_clients() -> None:
    rng = np.random.default_rng(0)
    pairs = [(rng.standard_normal((20, 3)), np.arange(20) % 2) for _ in range(5)]
    result = fedmap.run("fedavg", fedmap.Federation.from_arrays(pairs), rounds=1, epochs=0.1)
    assert len(result.rounds[0]["clients"]) == 5
    assert result.settings.batch == 32


def test_settings_that_are_given_win_over_the_readers(tmp_path: Path) -> None:
    given = {"data": f"npz:{write_sites(tmp_path)}", "fraction": 0.5, "rounds": 3, "batch": 8}
    settings = Settings.of(given)
    assert (settings.fraction, settings.rounds, settings.batch) == (0.5, 3, 8)


def test_compare_and_sweep_train_all_clients_of_own_data(tmp_path: Path) -> None:
    data = f"npz:{write_sites(tmp_path / 'data')}"
    short: dict[str, Any] = {"data": data, "rounds": 1, "epochs": 0.1}
    compared = fedmap.compare(["fedavg"], out=tmp_path / "compare", **short)
    swept = fedmap.sweep("fedprox", {"mu": [0.1]}, out=tmp_path / "sweep", **short)
    for comparison in (compared, swept):
        ((result,),) = comparison.results.values()
        assert len(result.rounds[0]["clients"]) == 3


def test_a_format_of_ones_own_has_the_defaults_it_is_registered_with(tmp_path: Path) -> None:
    with FORMATS.restored():
        declared = Defaults(rounds=7, fraction=0.25)
        register_format("mine", "for this test", declared)(
            lambda path: replace(read_npz(path), defaults=declared)
        )
        settings = Settings.of({"data": f"mine:{tmp_path}"})
    assert (settings.rounds, settings.fraction) == (7, 0.25)


@pytest.mark.parametrize("data", ["fashion-mnist", "cifar-10"])
def test_official_data_keeps_the_papers_settings(data: str) -> None:
    settings = Settings.of({"data": data})
    assert (settings.fraction, settings.rounds, settings.batch) == (0.2, 150, 64)
