"""What is said before training starts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmap.cli import before
from fedmap.federation import Federation
from fedmap.simulate.settings import Settings

Fedmap = Callable[[str], Any]
SMALL = "--data synthetic --net mlp --clients 4 --rounds 1 --epochs 0.2 --workers 1"


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    """Two branches with images of two of three classes."""
    holds = {"oslo": ("boot", "coat"), "bergen": ("coat", "dress")}
    for client, classes in holds.items():
        for name in classes:
            folder = tmp_path / "branches" / client / name
            folder.mkdir(parents=True)
            for number in range(10):
                Image.new("L", (20, 20), number).save(folder / f"{number}.png")
    return tmp_path / "branches"


def test_a_dry_run_says_what_it_understood_and_trains_nothing(
    fedmap: Fedmap, branches: Path, tmp_path: Path
) -> None:
    done = fedmap("run --data folder:branches --size 16 --net mlp --method fedavg --dry-run")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "runs").exists()
    *lines, cost = done.stderr.splitlines()
    assert lines == [
        f"data: folder:{branches}: 2 clients (bergen, oslo), 32 training samples, "
        "8 in the clients' own test sets",
        "samples: gray images scaled to 16x16",
        "classes: 3, of which a client misses 1",
        "  bergen misses boot",
        "  oslo misses dress",
        "net: mlp, 395,776 parameters",
        "training: fedavg, 50 rounds of all clients, 5 steps of batch 32 for each, lr 0.03",
    ]
    assert re.fullmatch(
        r"cost: about \d+ s and \d+\.\d GB of memory on this machine as it is now, "
        r"with \d+ workers?",
        cost,
    )


def test_a_run_says_it_too_and_then_trains(fedmap: Fedmap, tmp_path: Path) -> None:
    done = fedmap(f"run {SMALL} --out here")
    assert "data: synthetic: 4 clients, drawn by partition incomplete" in done.stderr
    assert (tmp_path / "here/done").exists()


@pytest.mark.parametrize("silent", ["--quiet", "--json"])
def test_a_quiet_run_says_nothing(fedmap: Fedmap, silent: str) -> None:
    assert fedmap(f"run {SMALL} {silent} --out here").stderr == ""


def lines_of(federation: Federation, **given: Any) -> str:
    settings = Settings.of(federation.origin | {"method": "fedavg", "net": "tiny"} | given)
    return "\n".join(before.summary(settings.resolved(federation), federation))


def tables(clients: int, classes: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return {
        f"site{k}": (rng.standard_normal((40, 3)), (np.arange(40) + k) % classes)
        for k in range(clients)
    }


def test_vectors_are_said_to_be_scaled_or_not() -> None:
    pairs = tables(2, 2)
    assert "vectors of 3 features, scaled to mean 0" in lines_of(Federation.from_arrays(pairs))
    raw = Federation.from_arrays(pairs, scale="none")
    assert "vectors of 3 features, as they are" in lines_of(raw)


def test_a_part_of_the_clients_and_a_range_of_steps_are_said() -> None:
    pairs = tables(4, 2)
    pairs["large"] = (np.zeros((400, 3)), np.arange(400) % 2)
    said = lines_of(Federation.from_arrays(pairs), fraction=0.4, epochs=3, batch=32)
    assert "50 rounds of 2 of 5 clients, 5 to 30 steps of batch 32 for each" in said


def test_samples_that_are_kept_for_choosing_are_said_and_take_no_steps() -> None:
    said = lines_of(Federation.from_arrays(tables(2, 2)), validation=0.5, epochs=10, batch=8)
    assert "32 training samples, 32 kept for choosing, 16 in the clients' own test sets" in said
    assert "20 steps of batch 8 for each" in said


def test_clients_that_have_all_classes_are_said_to() -> None:
    assert "classes: 2, and every client has all" in lines_of(Federation.from_arrays(tables(2, 2)))


def test_many_missing_classes_are_counted() -> None:
    pairs = tables(2, 2)
    pairs["many"] = (np.zeros((60, 3)), np.repeat(np.arange(2, 14), 5))
    said = lines_of(Federation.from_arrays(pairs))
    assert "site0 misses 2, 3, 4, 5, 6, 7, 8, 9 and 4 more" in said


def test_many_clients_are_not_named() -> None:
    said = lines_of(Federation.from_arrays(tables(11, 60)))
    assert "site3" not in said
    assert "classes: 50, of which a client misses 18" in said  # 8 of its 40 are tested
