"""Small finished runs whose models the tests use."""

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import fedmap
from fedmap.data import synthetic
from fedmap.federation import Federation, partition
from fedmap.simulate.result import Result

SMALL: dict[str, Any] = {"rounds": 2, "fraction": 0.5, "epochs": 1, "batch": 20}
Finished = Callable[..., Result]


@pytest.fixture(scope="session")
def pictures() -> Federation:
    """Four clients, gray 20x20 pixels of four classes, some classes missing."""
    data = synthetic(classes=4, train=120, test=40, shape=(1, 20, 20))
    return partition(data, 4, seed=1)


@pytest.fixture(scope="session")
def finished(
    tmp_path_factory: pytest.TempPathFactory, federation: Federation, pictures: Federation
) -> Finished:
    """A run of this method and net on vectors or on pictures; each is made once."""

    @cache
    def run(method: str, net: str, of: str = "pictures", preset: str | None = None) -> Result:
        out = tmp_path_factory.mktemp(f"{method}-{net}")
        clients = pictures if of == "pictures" else federation
        params = {"preset": preset} if preset else {}
        return fedmap.run(method, clients, net=net, out=out / "run", params=params, **SMALL)

    return run
