"""The native kernels, where they can be built, and what was in force before again after every
test."""

from collections.abc import Iterator

import pytest

from fedmap import kernels


@pytest.fixture
def native() -> Iterator[None]:
    if not kernels.available():
        pytest.skip(f"no native kernels: {kernels.why_not()}")
    with kernels.in_force("native"):
        yield


@pytest.fixture
def forgotten() -> Iterator[None]:
    """What was loaded and printed before is forgotten, and afterwards what this test loaded."""

    def forget() -> None:
        kernels._load.cache_clear()
        kernels._say_once.cache_clear()

    forget()
    with kernels.in_force("torch"):
        yield
    forget()
