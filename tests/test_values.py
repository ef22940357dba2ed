"""Dictionaries of tensors in memory and in files."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedmap import values
from fedmap.values import Layout, Values, nbytes, number

shapes = st.lists(st.integers(0, 4), max_size=3)
kinds = [torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8]


def counted(kind: tuple[torch.dtype, list[int]]) -> Tensor:
    """0, 1, 2, ... in this type and shape."""
    dtype, shape = kind
    return torch.arange(torch.Size(shape).numel()).view(shape).to(dtype)


dictionaries = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.one_of(
        st.integers(-(2**63), 2**63 - 1).map(number),
        st.floats(allow_nan=False).map(number),
        st.tuples(st.sampled_from(kinds), shapes).map(counted),
    ),
    max_size=5,
)


def same(one: Values, other: Values) -> bool:
    return list(one) == list(other) and all(
        a.dtype == b.dtype and torch.equal(a, b)
        for a, b in zip(one.values(), other.values(), strict=True)
    )


@given(dictionaries, st.integers(0, 3))
def test_what_is_written_into_memory_is_read_again(entries: Values, start: int) -> None:
    layout = Layout.of(entries)
    memory = bytearray(layout.nbytes + start * 64 or 1)
    layout.write(entries, memory, start * 64)
    assert same(layout.read(memory, start * 64), entries)


@given(dictionaries)
def test_entries_of_a_layout_do_not_overlap(entries: Values) -> None:
    layout = Layout.of(entries)
    ends = [*(entry.offset for entry in layout.entries), layout.nbytes]
    for entry, tensor, end in zip(layout.entries, entries.values(), ends[1:], strict=True):
        assert entry.offset % 64 == 0
        assert entry.offset + tensor.nbytes <= end


def test_a_file_keeps_tensors_numbers_and_notes(tmp_path: Path) -> None:
    entries = {"w": torch.arange(6.0).view(2, 3).t(), "count": number(3), "share": number(0.1)}
    path = tmp_path / "values.safetensors"
    path.write_bytes(values.save(entries, {"step": "7"}))
    back = values.load(path)
    assert back.keys() == entries.keys()
    assert all(torch.equal(back[name], entries[name]) for name in entries)
    assert values.load_notes(path) == {"step": "7"}


@pytest.mark.parametrize(("value", "dtype"), [(3, torch.int64), (0.1, torch.float64)])
def test_a_number_is_a_tensor_without_dimensions_that_keeps_it_exactly(
    value: float, dtype: torch.dtype
) -> None:
    assert number(value).shape == ()
    assert number(value).dtype == dtype
    assert number(value).item() == value


def test_bytes_are_counted_as_they_travel() -> None:
    entries = {"model": torch.zeros(10), "count": number(3), "share": number(0.5)}
    assert nbytes(entries) == 40 + 8 + 8


def test_a_dictionary_without_entries_survives_a_file(tmp_path: Path) -> None:
    (tmp_path / "none").write_bytes(values.save({}))
    assert values.load(tmp_path / "none") == {}
