"""The native kernels, where they can be built, and what was in force before again after every
test."""

from collections.abc import Iterator

import pytest
import torch

from fedmap import kernels


@pytest.fixture
def native() -> Iterator[None]:
    yield from in_force()


def in_force() -> Iterator[None]:
    if not kernels.available():
        pytest.skip(f"no native kernels: {kernels.why_not()}")
    with kernels.in_force("native"):
        yield


@pytest.fixture(params=["AVX2", "AVX512"])
def every_native(
    request: pytest.FixtureRequest, forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The kernels that are compiled for processors with AVX2, and those for AVX-512."""
    if request.param == "AVX512" != torch.backends.cpu.get_cpu_capability():
        pytest.skip("the processor has no registers of sixteen floats")
    if kernels.available():  # so the processor has AVX2 at least
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: request.param)
        kernels._load.cache_clear()
    yield from in_force()


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
