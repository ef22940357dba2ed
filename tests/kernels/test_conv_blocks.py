"""The native chain against PyTorch: values and gradients, for shapes of every kind, and the corners
of pooling and ReLU."""

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedmap import kernels
from fedmap.errors import FedmapError
from fedmap.kernels import Block, chain, conv_blocks
from fedmap.kernels.chain import _wide

pytestmark = [
    pytest.mark.usefixtures("every_native", "lanes"),
    pytest.mark.parametrize(
        ("every_native", "lanes"), [("AVX2", 8), ("AVX512", 8), ("AVX512", 16)], indirect=True
    ),
]


@pytest.fixture
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registers of so many floats for every chain, however badly it fills them."""
    monkeypatch.setattr(chain, "_wide", lambda channels: request.param == 16)
    chain._plan.cache_clear()
    yield
    chain._plan.cache_clear()


class Layer(NamedTuple):
    outputs: int
    kernel: int
    padding: int = 0
    pool: bool = True
    bias: bool = True


class Case(NamedTuple):
    shape: tuple[int, int, int, int]
    layers: tuple[Layer, ...]


NETS = {
    "lenet": Case((9, 1, 32, 32), (Layer(6, 5), Layer(16, 5))),
    "conv2": Case((2, 3, 32, 32), (Layer(32, 5, 2), Layer(64, 5, 2))),
    "femnist": Case((2, 1, 28, 28), (Layer(32, 5, 2), Layer(64, 5, 2, pool=False))),
    "tfcnn": Case((2, 3, 32, 32), (Layer(32, 3, 1), Layer(64, 3, 1), Layer(64, 3, 1))),
    "vgg": Case(
        (2, 3, 16, 16),
        (Layer(64, 3, 1), Layer(128, 3, 1), Layer(136, 3, 1, pool=False), Layer(40, 3, 1)),
    ),
}


def drawn(seed: int) -> Case:
    """Shapes at random: odd sizes, any kernel, any number of channels, pooled or not."""
    draw = random.Random(seed)
    side = [draw.randint(7, 19), draw.randint(7, 19)]
    shape = (draw.randint(1, 17), draw.choice([1, 1, 2, 3, 3, 5, 8, 20]), side[0], side[1])
    layers: list[Layer] = []
    for _ in range(draw.randint(1, 3)):
        layer = Layer(
            draw.choice([draw.randint(1, 16), draw.randint(17, 60)]),
            draw.randint(1, 7),
            draw.randint(0, 3),
            draw.random() < 0.6,
            draw.random() < 0.7,
        )
        after = [
            (n + 2 * layer.padding - layer.kernel + 1) // (2 if layer.pool else 1) for n in side
        ]
        if min(after) < 1:
            break
        side = after
        layers.append(layer)
    return Case(shape, tuple(layers) or (Layer(4, 3, 1),))


def tensors(
    case: Case, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, list[Block]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(case.shape, generator=generator).to(dtype).requires_grad_()
    blocks, channels = [], case.shape[1]
    for outputs, kernel, padding, pool, bias in case.layers:
        scale = (2 / (channels * kernel**2)) ** 0.5
        weight = torch.randn(outputs, channels, kernel, kernel, generator=generator) * scale
        shift = torch.randn(outputs, generator=generator) * 0.1
        weight, shift = (t.to(dtype).requires_grad_() for t in (weight, shift))
        blocks.append(Block(weight, shift if bias else None, padding, pool))
        channels = outputs
    return x, blocks


def literal(x: Tensor, blocks: list[Block]) -> Tensor:
    for weight, bias, padding, pool in blocks:
        x = F.relu(F.conv2d(x, weight, bias, padding=padding))
        x = F.max_pool2d(x, 2) if pool else x
    return x


def leaves(x: Tensor, blocks: list[Block]) -> list[Tensor]:
    return [x, *(t for b in blocks for t in (b.weight, b.bias) if t is not None)]


Run = Callable[[Tensor, list[Block]], Tensor]


def everything(run: Run, x: Tensor, blocks: list[Block]) -> list[Tensor]:
    """The output, and the gradients of a random sum of it."""
    y = run(x, blocks)
    factors = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves(x, blocks), factors)]


def assert_as_exact_as_pytorch(case: Case) -> None:
    exact = everything(literal, *tensors(case, dtype=torch.float64))
    expected = everything(literal, *tensors(case))
    results = everything(conv_blocks, *tensors(case))
    for truth, reference, result in zip(exact, expected, results, strict=True):
        assert result.shape == truth.shape
        assert result.is_contiguous()
        scale = truth.abs().max()
        error, usual = ((t - truth).abs().max() for t in (result, reference))
        assert error <= 4 * usual + 1e-6 * scale, (
            f"error {error / scale:.1e} of the largest value, PyTorch {usual / scale:.1e}"
        )


def test_wide_registers_are_for_chains_that_fill_them() -> None:
    assert _wide([32, 64])
    assert _wide([16])
    assert not _wide([6, 16])  # two registers of sixteen, three of eight
    assert not _wide([8])


def test_a_library_without_wide_registers_is_asked_for_none() -> None:
    class Narrow:
        fedmap_memory_8, fedmap_forward_8, fedmap_backward_8 = "memory", "forward", "backward"

        def fedmap_lanes(self) -> int:
            return 8

    narrow: Any = Narrow()
    assert chain.functions(narrow, wide=True) == ("memory", "forward", "backward")


@pytest.mark.parametrize("name", NETS)
def test_the_nets_chains_are_as_exact_as_pytorch(name: str) -> None:
    assert_as_exact_as_pytorch(NETS[name])


@pytest.mark.parametrize("seed", range(60))
def test_any_shape_is_as_exact_as_pytorch(seed: int) -> None:
    assert_as_exact_as_pytorch(drawn(seed))


@pytest.mark.parametrize("kernel", range(1, 8))
@pytest.mark.parametrize("channels", [1, 3, 9])
def test_every_kernel_size_is_as_exact_as_pytorch(kernel: int, channels: int) -> None:
    assert_as_exact_as_pytorch(
        Case(
            (3, channels, 9, 12),
            (Layer(10, kernel, kernel // 2), Layer(25, kernel, kernel - 1, pool=False)),
        )
    )


@pytest.mark.parametrize("samples", range(1, 18))
def test_every_batch_size_is_as_exact_as_pytorch(samples: int) -> None:
    assert_as_exact_as_pytorch(Case((samples, 1, 13, 11), (Layer(6, 5, 1), Layer(7, 3, 1))))


def test_images_without_gradient_leave_the_other_gradients_as_they_are() -> None:
    for case in NETS.values():
        x, blocks = tensors(case)
        with_images = everything(conv_blocks, x, blocks)
        y = conv_blocks(x.detach(), blocks)
        factors = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
        without = torch.autograd.grad(y, leaves(x, blocks)[1:], factors)
        for a, b in zip([with_images[0], *with_images[2:]], [y.detach(), *without], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * float(b.abs().max()))


def test_a_small_step_changes_the_output_as_the_gradient_says() -> None:
    x, blocks = tensors(Case((2, 2, 9, 8), (Layer(3, 3, 1), Layer(4, 3, 1, pool=False))), seed=3)
    parts = leaves(x, blocks)
    factors = torch.randn_like(conv_blocks(x, blocks))
    gradients = torch.autograd.grad(conv_blocks(x, blocks), parts, factors)
    for part, gradient in zip(parts, gradients, strict=True):
        step = gradient * (1e-4 / gradient.norm())
        sums = []
        with torch.no_grad():
            for sign in (1, -2, 1):  # there, back beyond the start, and home again
                part += sign * step
                sums.append((conv_blocks(x, blocks).double() * factors).sum())
        assert (sums[0] - sums[1]) / 2 == pytest.approx(float(gradient.norm() * 1e-4), rel=0.02)


def test_of_equal_values_the_first_gets_the_gradient() -> None:
    x = torch.ones(2, 1, 8, 8, requires_grad=True)
    blocks = [
        Block(torch.ones(3, 1, 3, 3), None, 1, True),
        Block(torch.ones(2, 3, 1, 1), None, 0, True),
    ]
    expected, found = (everything_of_x(run, x, blocks) for run in (literal, conv_blocks))
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def everything_of_x(run: Run, x: Tensor, blocks: list[Block]) -> tuple[Tensor, ...]:
    y = run(x, blocks)
    return y, *torch.autograd.grad(y.sum(), x)


@pytest.mark.parametrize("pool", [True, False])
def test_an_output_of_exactly_zero_has_no_gradient(pool: bool) -> None:
    x, [block] = tensors(Case((3, 2, 6, 6), (Layer(4, 3, 1, pool),)))
    zero = Block(
        torch.zeros_like(block.weight).requires_grad_(), torch.zeros(4, requires_grad=True), 1, pool
    )
    y, *gradients = everything(conv_blocks, x, [zero])
    assert not y.any()
    assert not any(g.any() for g in gradients)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("pool", [True, False])
def test_what_is_not_finite_goes_where_pytorch_lets_it_go(poison: float, pool: bool) -> None:
    x, blocks = tensors(Case((3, 1, 14, 14), (Layer(6, 5, 0, pool), Layer(5, 3, 1, pool))))
    with torch.no_grad():
        x[1, 0, 6, 7] = poison
    expected, found = literal(x, blocks), conv_blocks(x, blocks)
    assert not expected[1].isfinite().all()
    assert torch.equal(expected.isnan(), found.isnan())
    assert torch.equal(expected.isinf(), found.isinf())


def test_nan_in_the_weights_reaches_every_output_of_the_channel() -> None:
    x, [block] = tensors(Case((2, 3, 8, 8), (Layer(9, 3),)))
    with torch.no_grad():
        block.weight[8, 2, 1, 1] = float("nan")
    y = conv_blocks(x, [block])
    assert y[:, 8].isnan().all()
    assert not y[:, :8].isnan().any()


@pytest.mark.parametrize("part", [0, 1, 3], ids=["images", "first weights", "second weights"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("pool", [True, False])
def test_what_is_not_finite_reaches_the_gradients_also_behind_a_relu(
    part: int, poison: float, pool: bool
) -> None:
    """Positive images and weights of one sign: minus infinity ends in the ReLU, as if nothing had
    happened, and only a product of it with a gradient of zero still shows it."""
    x, blocks = tensors(Case((3, 1, 14, 14), (Layer(6, 5, 0, pool), Layer(5, 3, 1, pool))))
    with torch.no_grad():
        x.abs_()
        blocks[0].weight.abs_()
        leaves(x, blocks)[part][..., 1, 1] = poison
    expected, found = (everything(run, x, blocks) for run in (literal, conv_blocks))
    assert all(
        torch.equal(a.isfinite(), b.isfinite()) for a, b in zip(expected, found, strict=True)
    )


def test_the_same_call_gives_the_same_bits() -> None:
    for case in NETS.values():
        first, second = (
            everything(conv_blocks, *tensors(case)),
            everything(conv_blocks, *tensors(case)),
        )
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_sample_has_the_same_output_in_every_batch() -> None:
    x, blocks = tensors(NETS["lenet"])
    assert torch.equal(conv_blocks(x, blocks)[4:5], conv_blocks(x[4:5], blocks))


def test_without_gradients_the_output_has_the_same_bits() -> None:
    x, blocks = tensors(NETS["tfcnn"])
    x = x.detach()
    trained = conv_blocks(x, blocks)
    with torch.no_grad():
        free = conv_blocks(x, blocks)
    with torch.inference_mode():
        inferred = conv_blocks(x, blocks)
    assert trained.requires_grad
    assert not free.requires_grad
    assert torch.equal(trained, free)
    assert torch.equal(trained, inferred)


@pytest.mark.parametrize("offset", [0, 1, 3, 7])
def test_weights_may_be_views_of_a_flat_vector_at_any_place(offset: int) -> None:
    x, blocks = tensors(NETS["lenet"])
    own = leaves(x, blocks)[1:]
    flat = torch.cat([torch.zeros(offset), *(t.detach().flatten() for t in own)])
    views, at = [], offset
    for t in own:
        views.append(flat[at : at + t.numel()].view(t.shape).requires_grad_())
        at += t.numel()
    viewed = [
        b._replace(weight=w, bias=s)
        for b, w, s in zip(blocks, views[::2], views[1::2], strict=True)
    ]
    for a, b in zip(
        everything(conv_blocks, x, blocks), everything(conv_blocks, x, viewed), strict=True
    ):
        assert torch.equal(a, b)


def test_any_memory_format_is_taken() -> None:
    x, blocks = tensors(NETS["tfcnn"])
    last = [
        b._replace(
            weight=b.weight.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        )
        for b in blocks
    ]
    turned = x.detach().contiguous(memory_format=torch.channels_last).requires_grad_()
    for a, b in zip(
        everything(conv_blocks, x, blocks), everything(conv_blocks, turned, last), strict=True
    ):
        assert torch.equal(a, b)


def test_a_gradient_that_repeats_in_memory_is_taken() -> None:
    x, blocks = tensors(NETS["lenet"])
    spread = torch.autograd.grad(conv_blocks(x, blocks).sum(), leaves(x, blocks))
    y = conv_blocks(x, blocks)
    plain = torch.autograd.grad(y, leaves(x, blocks), torch.ones_like(y))
    assert all(torch.equal(a, b) for a, b in zip(spread, plain, strict=True))


def test_only_what_is_trained_gets_a_gradient() -> None:
    x, blocks = tensors(NETS["tfcnn"])
    wanted = everything(conv_blocks, x, blocks)
    for trained in ([1], [2], [5], [4, 6], [0], [3, 0]):
        x, blocks = tensors(NETS["tfcnn"])
        for i, leaf in enumerate(leaves(x, blocks)):
            leaf.requires_grad_(i in trained)
        y = conv_blocks(x, blocks)
        torch.autograd.backward(y, torch.randn(y.shape, generator=torch.Generator().manual_seed(1)))
        for i, leaf in enumerate(leaves(x, blocks)):
            assert (leaf.grad is not None) == (i in trained)
            if leaf.grad is not None:
                torch.testing.assert_close(leaf.grad, wanted[1 + i], rtol=1e-4, atol=1e-4)


def test_a_graph_that_is_retained_gives_its_gradients_again() -> None:
    x, blocks = tensors(NETS["lenet"])
    y = conv_blocks(x, blocks).sum()
    first = torch.autograd.grad(y, leaves(x, blocks), retain_graph=True)
    conv_blocks(x * 2, blocks).sum().backward()
    assert all(
        torch.equal(a, b)
        for a, b in zip(first, torch.autograd.grad(y, leaves(x, blocks)), strict=True)
    )


def test_weights_changed_before_backward_are_an_error() -> None:
    x, blocks = tensors(NETS["lenet"])
    y = conv_blocks(x, blocks).sum()
    with torch.no_grad():
        blocks[1].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_second_derivative_is_an_error() -> None:
    x, blocks = tensors(NETS["lenet"])
    with pytest.raises(FedmapError, match="second derivatives"):
        torch.autograd.grad(conv_blocks(x, blocks).sum(), x, create_graph=True)


def test_what_the_kernels_do_not_take_goes_to_pytorch() -> None:
    x, blocks = tensors(NETS["lenet"], dtype=torch.float64)
    assert torch.equal(conv_blocks(x, blocks), literal(x, blocks))
    assert conv_blocks(x[:0], blocks).shape == (0, 16, 5, 5)
    wide = [Block(torch.randn(2, 1, 3, 9), None, 1, False)]
    assert torch.equal(conv_blocks(x.float(), wide), literal(x.float(), wide))
    with pytest.raises(RuntimeError, match="channels"):
        conv_blocks(x.float(), [Block(torch.randn(2, 3, 3, 3), None, 0, True)])


def test_what_is_in_force_is_what_runs() -> None:
    x, blocks = tensors(NETS["lenet"])
    assert "NativeChain" in str(conv_blocks(x, blocks).grad_fn)
    with kernels.in_force("torch"):
        assert "NativeChain" not in str(conv_blocks(x, blocks).grad_fn)
