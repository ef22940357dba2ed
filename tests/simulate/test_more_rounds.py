"""A run goes on for more rounds than it was started with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.federation import Federation
from fedmap.methods import METHODS
from fedmap.simulate.result import Result

SMALL: dict[str, Any] = {"net": "tiny-bn", "fraction": 0.5, "epochs": 1, "batch": 20}
# The momentum of an inherited private model depends on the number of all rounds.
HPM = {"fedphp", "map", "scamap"}


class StopError(Exception):
    pass


def measured(result: Result) -> list[dict[str, Any]]:
    return [record | {"seconds": 0} for record in result.rounds]


def models(folder: Path) -> dict[str, bytes]:
    """What the run leaves, but for the checkpoint."""
    files = [*folder.glob("*.safetensors"), *folder.glob("personal/*"), folder / "final.json"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.parametrize("method", sorted(set(METHODS) - HPM))
def test_two_and_two_rounds_are_the_same_as_four(
    method: str, federation: Federation, tmp_path: Path
) -> None:
    at_once = fedmap.run(method, federation, out=tmp_path / "at once", rounds=4, **SMALL)
    given: dict[str, Any] = SMALL | {"out": tmp_path / "later", "keep_states": True}
    fedmap.run(method, federation, rounds=2, **given)
    later = fedmap.run(method, federation, rounds=4, resume=True, **given)
    assert measured(later) == measured(at_once)
    assert models(later.folder) == models(at_once.folder)


@pytest.mark.parametrize("method", sorted(HPM))
def test_a_method_that_looks_at_the_number_of_rounds_goes_on_too(
    method: str, federation: Federation, tmp_path: Path
) -> None:
    given: dict[str, Any] = SMALL | {"out": tmp_path / "run", "keep_states": True}
    first = fedmap.run(method, federation, rounds=2, **given)
    later = fedmap.run(method, federation, rounds=4, resume=True, **given)
    assert measured(later)[:2] == measured(first)
    assert later.final["rounds"] == len(later.rounds) == later.settings.rounds == 4


def test_a_method_without_private_states_goes_on_without_any_kept(
    federation: Federation, tmp_path: Path
) -> None:
    fedmap.run("fedavg", federation, out=tmp_path / "run", rounds=2, **SMALL)
    assert not (tmp_path / "run/checkpoint").exists()
    later = fedmap.run("fedavg", federation, out=tmp_path / "run", rounds=3, resume=True, **SMALL)
    assert len(later.rounds) == 3
    assert not (tmp_path / "run/checkpoint").exists()


def test_a_run_whose_states_were_not_kept_is_refused_and_stays_as_it_is(
    federation: Federation, tmp_path: Path
) -> None:
    fedmap.run("scaffold", federation, out=tmp_path / "run", rounds=2, **SMALL)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    with pytest.raises(fedmap.FedmapError, match="its clients' states were not kept, so it cannot"):
        fedmap.run("scaffold", federation, out=tmp_path / "run", rounds=3, resume=True, **SMALL)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


@pytest.mark.parametrize(
    ("rounds", "resume", "how"),
    [
        (4, False, "goes on to more only with resume"),
        (2, True, "can never have fewer"),
    ],
)
def test_another_number_of_rounds_without_resume_and_a_smaller_one_are_refused(
    rounds: int, resume: bool, how: str, federation: Federation, tmp_path: Path
) -> None:
    fedmap.run("fedavg", federation, out=tmp_path / "run", rounds=3, **SMALL)
    with pytest.raises(fedmap.FedmapError, match=f"has 3 rounds, not {rounds}, and {how}"):
        fedmap.run(
            "fedavg", federation, out=tmp_path / "run", rounds=rounds, resume=resume, **SMALL
        )


def test_a_run_that_is_stopped_in_its_further_rounds_goes_on_to_the_same_end(
    federation: Federation, tmp_path: Path
) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise StopError

    at_once = fedmap.run("scaffold", federation, out=tmp_path / "at once", rounds=4, **SMALL)
    given: dict[str, Any] = SMALL | {"out": tmp_path / "run", "keep_states": True}
    fedmap.run("scaffold", federation, rounds=2, **given)
    with pytest.raises(StopError):
        fedmap.run("scaffold", federation, rounds=4, resume=True, on_round=stop, **given)
    with pytest.raises(fedmap.FedmapError, match="is not finished"):
        Result.read(tmp_path / "run")
    later = fedmap.run("scaffold", federation, rounds=4, resume=True, **given)
    assert models(later.folder) == models(at_once.folder)


def test_the_command_goes_on_to_so_many_rounds(
    fedmap: Callable[[str], Any], tmp_path: Path
) -> None:
    small = "--data synthetic --net mlp --clients 4 --epochs 0.5 --workers 1 --quiet"
    assert fedmap(f"run {small} --rounds 1 --keep-states --out out").returncode == 0
    done = fedmap("resume out --rounds 2 --quiet")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out/final.json").read_text())["rounds"] == 2
    assert "rounds = 2\n" in (tmp_path / "out/run.toml").read_text()
