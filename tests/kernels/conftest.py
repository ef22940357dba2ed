"""The native kernels, where they can be built, and PyTorch in force again after every test."""

from collections.abc import Iterator

import pytest

from fedmap import kernels


@pytest.fixture
def native() -> Iterator[None]:
    if not kernels.available():
        pytest.skip(f"no native kernels: {kernels.why_not()}")
    kernels.use("native")
    yield
    kernels.use("torch")


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What was loaded and said before is forgotten, and what this test loads and says afterwards."""

    def forget() -> None:
        kernels._load.cache_clear()
        kernels._say_once.cache_clear()
        kernels.use("torch")

    forget()
    yield
    forget()
