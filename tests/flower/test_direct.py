"""Every method through the real ClientApp, compared with the simulator to the bit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.flower.conftest import DirectGrid, write_site

from fedmap import values
from fedmap.data import load
from fedmap.errors import FedmapError
from fedmap.federation import ClientData
from fedmap.flower import server_app
from fedmap.flower.server_app import Options, serve
from fedmap.flower.sites import Sites
from fedmap.flower.terms import Hello, Terms, agree, fit, offer
from fedmap.methods import METHODS
from fedmap.simulate.result import Result
from fedmap.simulate.run import Run
from fedmap.simulate.settings import Settings

CONFIG: dict[str, Any] = {
    "net": "tiny", "rounds": 3, "epochs": 1.0, "batch": 8, "lr": 0.1, "min-sites": 3,
    "round-timeout": 30.0, "fraction": 0.7,
}  # fmt: skip


def simulated(nodes: dict[int, dict[str, Any]], out: Path, test: str = "", **more: Any) -> Result:
    """The same sites in one process, with the ordinary engine; `test` is the server's own data."""
    configs = sorted(nodes.values(), key=lambda config: str(config["site"]))
    names = [str(config["site"]) for config in configs]
    data = [load(str(config["data"])) for config in configs]
    offers = [offer(n, d, Hello(), native=True) for n, d in zip(names, data, strict=True)]
    terms: Terms = agree(offers, ())
    own = {k: ClientData.of(fit(d, terms, f"site {names[k]}"), k) for k, d in enumerate(data)}
    given = {k: v for k, v in CONFIG.items() if "-" not in k} | {"data": "sites"} | more
    held = server_app.test_data(Options(out="", test_data=test), terms)
    return Run(Settings.of(given), Sites(terms, names, own, held), out).go()


def records(result: Result) -> list[dict[str, Any]]:
    return [{**record, "seconds": 0} for record in result.rounds]


def needs_public(method: str) -> bool:
    return METHODS[method].public_samples > 0


# What a server with test samples of its own is not told, and one that asks the sites for theirs.
NOT_TOLD = {
    True: {"global_accuracy_per_client"},
    False: {"global_macro_f1", "global_confusion"},
}
NEVER_TOLD = {"balanced_accuracy", "macro_f1", "accuracy_per_class", "confusion"}
POOLED = [name for name, method in METHODS.items() if method.pooled]


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(POOLED)))
def test_a_method_has_the_simulators_bits(method: str, grid: DirectGrid, tmp_path: Path) -> None:
    write_site(tmp_path / "test", 50, range(4), each=25)
    test = f"npz:{tmp_path / 'test'}" if needs_public(method) else ""
    config = CONFIG | {"method": method, "out": str(tmp_path / "run"), "test-data": test}
    result = serve(grid, config)
    expected = simulated(grid.configs, tmp_path / "simulated", test, method=method)
    assert records(result) == records(expected)
    unknown = NOT_TOLD[needs_public(method)] | {f"personal_{name}" for name in NEVER_TOLD}
    assert all(result.final[name] in (None, [None] * 3) for name in unknown)
    known = result.final.keys() - unknown
    assert {name: result.final[name] for name in known} == {
        name: expected.final[name] for name in known
    }
    file = "global.safetensors"
    assert (result.folder / file).exists() == (expected.folder / file).exists()
    if (result.folder / file).exists():
        ours, other = (values.load(r.folder / file) for r in (result, expected))
        assert all(torch.equal(ours[name], other[name]) for name in other)
    for number, name in enumerate(sorted(c["site"] for c in grid.configs.values())):
        (kept,) = (tmp_path / name / "states").glob("*/personal.safetensors")
        ours = values.load(kept)
        other = values.load(expected.folder / f"personal/{number:05d}.safetensors")
        assert ours.keys() == other.keys()
        assert all(torch.equal(ours[entry], other[entry]) for entry in other)
    assert not list((result.folder / "personal").glob("*"))


@pytest.mark.parametrize("method", [m for m in sorted(METHODS) if needs_public(m)])
def test_a_method_that_needs_public_data_is_refused_where_the_server_has_none(
    method: str, grid: DirectGrid, tmp_path: Path
) -> None:
    with pytest.raises(FedmapError, match=f"method {method} needs .* public samples"):
        serve(grid, CONFIG | {"method": method, "out": str(tmp_path / "run")})


@pytest.mark.parametrize("method", POOLED)
def test_a_method_that_pools_all_samples_is_refused(
    method: str, grid: DirectGrid, tmp_path: Path
) -> None:
    with pytest.raises(FedmapError, match=f"method {method} trains .* no site sends its samples"):
        serve(grid, CONFIG | {"method": method, "out": str(tmp_path / "run")})
    assert not grid.bytes


def test_a_federation_chooses_the_simulators_round_and_sites_tell_no_classes(
    grid: DirectGrid, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"method": "fedavg", "validation": 0.2, "patience": 2, "rounds": 6}
    result = serve(grid, CONFIG | more | {"out": str(tmp_path / "run")})
    expected = simulated(grid.configs, tmp_path / "simulated", **more)
    assert records(result) == records(expected)
    assert result.final["best_round"] == expected.final["best_round"]
    ours, other = (values.load(r.folder / "global.safetensors") for r in (result, expected))
    assert all(torch.equal(ours[name], other[name]) for name in other)
    assert not any(b"confusion" in content for content in grid.bytes)


def test_vectors_are_scaled_by_the_sums_of_all_sites(grid: DirectGrid, tmp_path: Path) -> None:
    result = serve(grid, CONFIG | {"method": "fedavg", "out": str(tmp_path / "run"), "rounds": 1})
    x = torch.cat([load(str(config["data"])).train_x for config in grid.configs.values()]).double()
    notes = json.loads(values.load_notes(result.folder / "global.safetensors")["fedmap"])
    assert any(b'"sums":[' in content for content in grid.bytes)
    assert torch.tensor(notes["mean"]).allclose(x.mean(0).float())
    assert torch.tensor(notes["std"]).allclose(x.std(0, correction=0).float())


def test_no_sums_are_sent_where_no_site_scales(grid: DirectGrid, tmp_path: Path) -> None:
    for config in grid.configs.values():
        config["scale"] = "none"
    result = serve(grid, CONFIG | {"method": "fedavg", "out": str(tmp_path / "run"), "rounds": 1})
    notes = json.loads(values.load_notes(result.folder / "global.safetensors")["fedmap"])
    assert notes["mean"] == []
    assert not any(b'"sums":[' in content for content in grid.bytes)


def test_sites_that_scale_and_sites_that_do_not_are_told_apart(
    grid: DirectGrid, tmp_path: Path
) -> None:
    config = next(config for config in grid.configs.values() if config["site"] == "tromso")
    config["scale"] = "none"
    with pytest.raises(FedmapError, match="site tromso has scale none, but others scale"):
        serve(grid, CONFIG | {"method": "fedavg", "out": str(tmp_path / "run")})
