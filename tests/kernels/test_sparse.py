"""Products that leave out the background, against float64: every layout, odd sizes, any share of
background."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedmap.kernels import add_product

pytestmark = pytest.mark.usefixtures("every_native")

sizes = st.integers(1, 150)  # around the kernel's blocks of 64 and 128


def matrix(rows: int, columns: int, *, transposed: bool, rng: torch.Generator) -> Tensor:
    if transposed:
        return torch.randn(columns, rows, generator=rng).t()
    return torch.randn(rows, columns, generator=rng)


@settings(max_examples=150)
@given(
    sizes,
    sizes,
    sizes,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, -1.0, 0.3]),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_the_product_is_as_exact_as_32_bits_allow(
    rows: int,
    depth: int,
    columns: int,
    left: bool,
    right: bool,
    background: float,
    share: float,
    seed: int,
) -> None:
    rng = torch.Generator().manual_seed(seed)
    a = matrix(rows, depth, transposed=left, rng=rng)
    b = matrix(depth, columns, transposed=right, rng=rng)
    a[torch.rand(rows, depth, generator=rng) < share] = background
    out = torch.randn(rows, columns, generator=rng)
    expected = out.double() + a.double() @ b.double()
    size = (out.abs() + (a.abs() + abs(background)) @ b.abs()).double()
    bound = 1e-6 * size * math.sqrt(depth) + 1e-6
    assert add_product(out, a, b, background) is out
    assert bool(((out - expected).abs() <= bound).all())


def test_a_row_has_the_same_bits_in_any_batch() -> None:
    a, b = torch.randn(70, 130).relu(), torch.randn(130, 90)
    whole = add_product(torch.zeros(70, 90), a, b)
    parts = [add_product(torch.zeros(len(part), 90), part, b) for part in torch.split(a, 11)]
    assert torch.equal(torch.cat(parts), whole)


def test_rows_apart_in_memory_and_the_floats_between_them_stay() -> None:
    memory = torch.full((6, 100), 7.0)
    a, b = torch.randn(6, 9), torch.randn(9, 70)
    add_product(memory[:, 10:80], a, b)
    torch.testing.assert_close(memory[:, 10:80], 7 + a @ b)
    assert bool((memory[:, :10] == 7).all())
    assert bool((memory[:, 80:] == 7).all())


def test_not_a_number_goes_through() -> None:
    a = torch.zeros(3, 20)
    a[1, 4] = math.nan
    out = add_product(torch.zeros(3, 5), a, torch.ones(20, 5))
    assert bool(out[1].isnan().all())
    assert bool((out[[0, 2]] == 0).all())


def same_where_not_finite(ours: Tensor, expected: Tensor) -> bool:
    odd = ~expected.isfinite()
    return (
        bool(odd.any())
        and torch.equal(ours.isfinite(), ~odd)
        and torch.equal(ours[odd].nan_to_num(), expected[odd].nan_to_num())
    )


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("background", [0.0, -1.0])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(3, 20, 5), (70, 130, 140)])
def test_what_is_not_finite_behind_the_background_comes_out_as_in_pytorch(
    poison: float, background: float, transposed: bool, rows: int, depth: int, columns: int
) -> None:
    rng = torch.Generator().manual_seed(0)
    a = torch.full((rows, depth), background)
    a[0] = torch.randn(depth, generator=rng)
    b = matrix(depth, columns, transposed=transposed, rng=rng)
    b[depth - 3, columns - 2] = poison
    ours = add_product(torch.zeros(rows, columns), a, b, background)
    expected = torch.zeros(rows, columns).addmm(a, b)
    assert same_where_not_finite(ours, expected)


def test_an_infinite_background_leaves_finite_rows_finite() -> None:
    a = torch.full((3, 20), math.inf)
    a[1] = 2
    out = add_product(torch.zeros(3, 5), a, torch.ones(20, 5), math.inf)
    assert bool((out[1] == 40).all())
    assert bool(out[[0, 2]].isinf().all())


def test_what_the_library_does_not_take_goes_to_pytorch() -> None:
    a, b = torch.randn(4, 5, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    assert torch.equal(add_product(torch.zeros(4, 6, dtype=torch.float64), a, b), a @ b)
    a, b = torch.randn(4, 5), torch.randn(5, 6)
    assert torch.equal(add_product(torch.zeros(6, 4).t(), a, b), torch.zeros(6, 4).t().addmm(a, b))


def test_matrices_that_do_not_fit() -> None:
    with pytest.raises(
        ValueError, match=r"matrices of \(4, 5\) and \(6, 7\) have no product of \(4, 7\)"
    ):
        add_product(torch.zeros(4, 7), torch.zeros(4, 5), torch.zeros(6, 7))
