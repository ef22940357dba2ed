"""Every test has its own cache and sees no real data, unless it asks for the fixture `real`."""

import os
import sys
from pathlib import Path

import pytest

from fedmap.data import locate

sys.path.insert(0, str(Path(__file__).parent))  # for writers and measure
REAL = os.environ.get("FEDMAP_DATA")


@pytest.fixture(autouse=True)
def _nothing_from_outside(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("FEDMAP_DATA", raising=False)
    monkeypatch.setattr(locate, "DEBIAN", Path("/nonexistent"))


@pytest.fixture
def real() -> Path:
    """The folder with the official files."""
    if not REAL:
        pytest.skip("set FEDMAP_DATA to a folder with the official files to run this test")
    return Path(REAL)
