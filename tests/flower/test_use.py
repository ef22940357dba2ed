"""The models of a Flower federation in use: at a site, for a newcomer, and after more rounds."""

import json
from pathlib import Path
from typing import Any

import torch
from tests.flower.conftest import DirectGrid, write_site
from tests.flower.test_direct import CONFIG, records, simulated

from fedmap import values
from fedmap.data import load
from fedmap.federation import ClientData
from fedmap.flower.server_app import serve
from fedmap.use.adapt import adapt
from fedmap.use.model import UsableModel


def config(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return CONFIG | {"method": "scaffold", "out": str(tmp_path / "run")} | more


def test_a_sites_personal_model_is_used_from_its_file(grid: DirectGrid, tmp_path: Path) -> None:
    serve(grid, config(tmp_path, method="fedrod"))
    (file,) = (tmp_path / "oslo/states").glob("*/personal.safetensors")
    # In the order of names oslo is site 1; of the four classes it has the first three.
    x, y = ClientData.of(load(str(grid.configs[100]["data"])), number=1).test
    right = int((UsableModel.read(file).logits(x).argmax(1) == y).sum())
    accuracy = json.loads((file.parent / "accuracy.json").read_text())["accuracy"]
    assert accuracy == right / len(y)


def test_a_newcomer_adapts_with_the_servers_folder_and_its_own_files(
    grid: DirectGrid, tmp_path: Path
) -> None:
    serve(grid, config(tmp_path))
    write_site(tmp_path / "bodo", 7, (1, 3))
    adapted = adapt(tmp_path / "run", f"npz:{tmp_path / 'bodo'}", tmp_path / "out")
    assert UsableModel.read(adapted.file).notes.observed == (1, 3)
    assert (adapted.training_samples, adapted.test_samples) == (20, 4)


def test_a_finished_federation_goes_on_for_more_rounds_with_the_states_at_the_sites(
    grid: DirectGrid, tmp_path: Path
) -> None:
    serve(grid, config(tmp_path, rounds=2))
    later = serve(grid, config(tmp_path, rounds=4))
    at_once = simulated(grid.configs, tmp_path / "simulated", method="scaffold", rounds=4)
    assert records(later) == records(at_once)
    ours, other = (values.load(r.folder / "server.safetensors") for r in (later, at_once))
    assert all(torch.equal(ours[name], other[name]) for name in other)
