"""Native kernels step aside where PyTorch looks at the operations instead of doing them, and for
tensors that are not in main memory."""

import warnings

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from fedmap import kernels
from fedmap.nets import build
from fedmap.nets.base import Net

pytestmark = pytest.mark.usefixtures("native")

SHAPE = (1, 28, 28)


@pytest.fixture(params=["lenet", "mlp"])
def net(request: pytest.FixtureRequest) -> Net:
    net = build(request.param, SHAPE, 10, seed=0).eval()
    for parameter in net.parameters():  # as in training: the linear layers then go their own way
        parameter.grad = torch.zeros_like(parameter)
    return net


def images(n: int) -> Tensor:
    return torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(n))


def test_a_traced_net_computes_what_the_net_computes_on_other_images(net: Net) -> None:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # PyTorch's own, that tracing is old
        traced = torch.jit.trace(net, images(2))
        torch.testing.assert_close(traced(images(5)), net(images(5)))


def test_an_exported_net_computes_what_the_net_computes_on_other_images(net: Net) -> None:
    with torch.no_grad():
        exported = torch.export.export(net, (images(5),)).module()
        torch.testing.assert_close(exported(images(5) + 1), net(images(5) + 1))


def test_a_net_of_tensors_without_numbers_has_the_right_shape() -> None:
    with FakeTensorMode():
        net = build("lenet", SHAPE, 10, seed=0)
        assert net(torch.zeros(3, *SHAPE)).shape == (3, 10)


def test_only_floats_of_32_bits_in_main_memory_are_taken() -> None:
    assert kernels.takes(torch.zeros(1), None)
    assert not kernels.takes(torch.zeros(1), torch.zeros(1, dtype=torch.float64))
    assert not kernels.takes(torch.zeros(1, device="meta"))
