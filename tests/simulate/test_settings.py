"""Settings: which defaults are used for which data, and how own data is named in them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmap
from fedmap import values
from fedmap.data import FORMATS, Defaults, read_npz, register_format
from fedmap.errors import DivergenceError, FedmapError
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


def test_a_run_of_vectors_keeps_their_statistics_with_its_models(tmp_path: Path) -> None:
    federation = Settings.of({"data": f"npz:{write_sites(tmp_path)}"}).federation()
    result = fedmap.run("fedavg", federation, rounds=1, epochs=0.1, out=tmp_path / "run")
    notes = json.loads(values.load_notes(result.folder / "global.safetensors")["fedmap"])
    assert notes["mean"] == list(federation.dataset.mean)
    assert len(notes["std"]) == 4


def test_scale_none_arrives_and_is_kept(tmp_path: Path) -> None:
    settings = Settings.of({"data": f"npz:{write_sites(tmp_path)}", "scale": "none"})
    federation = settings.federation()
    assert federation.dataset.mean == ()
    assert settings.resolved(federation).scale == "none"


def test_what_was_not_said_of_own_data_is_in_the_resolved_settings(tmp_path: Path) -> None:
    settings = Settings.of({"data": f"npz:{write_sites(tmp_path)}"})
    assert settings.scale is None
    assert settings.resolved(settings.federation()).scale == "standard"


def test_own_data_has_its_whole_path_in_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sites(tmp_path / "sites")
    monkeypatch.chdir(tmp_path)
    settings = Settings.of({"data": "npz:sites"})
    assert settings.data == f"npz:{tmp_path / 'sites'}"
    assert settings.name.startswith("map-npz_sites-")
    assert fedmap.partition(fedmap.load("npz:sites")).origin["data"] == settings.data


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data": "synthetic", "scale": "none"}, "dataset synthetic takes no --scale; that is for"),
        (
            {"data": "npz:{}", "client_column": "a"},
            r"data format npz takes no --client-column \(client_column in Python\); it",
        ),
        ({"data": "npz:{}", "scale": "half"}, "the run: scale is 'half'"),
    ],
)
def test_an_option_that_the_data_does_not_take_is_refused(
    given: dict[str, str], says: str, tmp_path: Path
) -> None:
    where = write_sites(tmp_path)
    with pytest.raises(FedmapError, match=says):
        Settings.of({name: value.format(where) for name, value in given.items()}).federation()


def test_a_loss_that_is_not_finite_points_to_large_features() -> None:
    rng = np.random.default_rng(0)
    pairs = [(1e18 * rng.standard_normal((20, 3)), np.arange(20) % 2) for _ in range(2)]
    raw = fedmap.Federation.from_arrays(pairs, scale="none")
    with pytest.raises(DivergenceError, match=r"its features reach .*, so scale them"):
        fedmap.run("fedavg", raw, rounds=3)
    assert fedmap.run("fedavg", fedmap.Federation.from_arrays(pairs), rounds=1).rounds


NAMES = {"map": "83a89bae", "fedavg": "15cd9d96", "fedrs": "e52739bd"}  # the ends of the names


def test_settings_and_parameters_that_came_later_are_no_part_of_a_plain_runs_name() -> None:
    """The names as version 0.1.0 gave them, so that its runs are found again."""
    plain: dict[str, Any] = {"net": "lenet", "clients": 20, "rounds": 7}
    names = {method: Settings.of(plain | {"method": method}).name for method in NAMES}
    assert {method: name[-8:] for method, name in names.items()} == NAMES
    given = plain | {"method": "fedrs", "params": {"factors": True}}
    assert Settings.of(given).name != names["fedrs"]
