"""Every test has its own cache and sees no real data, unless it asks for the fixture `real`."""

import os
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from fedmap.data import locate as find

sys.path.insert(0, str(Path(__file__).parent))  # for the module writers, which several tests use
REAL = os.environ.get("FEDMAP_DATA")


@pytest.fixture(autouse=True)
def _nothing_from_outside(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("FEDMAP_DATA", raising=False)
    monkeypatch.setattr(find, "DEBIAN", Path("/nonexistent"))


@pytest.fixture
def real() -> Path:
    """The folder with the official files."""
    if not REAL:
        pytest.skip("set FEDMAP_DATA to a folder with the official files to run this test")
    return Path(REAL)


@pytest.fixture
def peak() -> Callable[[Callable[[], object]], int]:
    """The most bytes that a call holds at once."""

    def measure(call: Callable[[], object]) -> int:
        tracemalloc.start()
        try:
            call()
        finally:
            most = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return most

    return measure
