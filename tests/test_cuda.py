"""On a machine with CUDA: every method gives the same bits twice there, and nearly those of the
CPU."""

from typing import Any

import pytest
import torch

import fedmap
from fedmap.federation import Federation
from fedmap.methods import METHODS
from fedmap.values import load

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="no CUDA here; tests/test_placement.py shows where tensors are without it",
)
SMALL: dict[str, Any] = {
    "net": "tiny-bn", "rounds": 2, "fraction": 0.5, "epochs": 1, "batch": 8, "lr": 0.05,
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")
def test_a_method_on_cuda_gives_the_same_bits_twice_and_nearly_those_of_the_cpu(
    name: str, images: Federation
) -> None:
    once, again, cpu = (
        fedmap.run(name, images, device=device, **SMALL) for device in ("cuda", "cuda", "cpu")
    )
    first, second, other = (
        load(result.folder / "server.safetensors") for result in (once, again, cpu)
    )
    for entry, value in first.items():
        assert torch.equal(value, second[entry])
        torch.testing.assert_close(value, other[entry], rtol=1e-2, atol=1e-3)
    assert once.final == again.final


@pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")
def test_workers_that_share_a_gpu_give_the_bits_of_one() -> None:
    dataset = fedmap.load("synthetic")
    settings = SMALL | {"net": "mlp", "device": "cuda"}
    one, two = (
        fedmap.run("map", fedmap.partition(dataset, 4), workers=workers, **settings)
        for workers in (1, 2)
    )
    assert one.final == two.final
