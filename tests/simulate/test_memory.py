import os

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedmap.simulate.memory import Layout, Memory, nbytes

shapes = st.lists(st.integers(0, 4), max_size=3)
values = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.one_of(
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.tuples(
            st.sampled_from([torch.float32, torch.float64, torch.int64, torch.bool, torch.uint8]),
            shapes,
        ).map(lambda kind: torch.arange(torch.Size(kind[1]).numel()).view(kind[1]).to(kind[0])),
    ),
    max_size=5,
)


@given(values, st.integers(0, 3))
def test_what_is_written_is_read_again(
    given: dict[str, torch.Tensor | float | int], start: int
) -> None:
    layout = Layout.of(given)
    memory = bytearray(layout.nbytes + start * 64 or 1)
    layout.write(given, memory, start * 64)
    read = layout.read(memory, start * 64)
    assert list(read) == list(given)
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            assert read[name].dtype == value.dtype
            assert torch.equal(read[name], value)
        else:
            assert type(read[name]) is type(value)
            assert read[name] == value


def test_what_is_offered_is_taken_once_by_whoever_comes_first() -> None:
    memory = Memory()
    for offered in (20_000, 3, 20_000):
        memory.offer(b"".join(number.to_bytes(8, "little") for number in range(offered)))
        pipes = [os.pipe() for _ in range(3)]
        children = []
        for _, end in pipes:
            children.append(os.fork())
            if children[-1] == 0:
                with open(end, "wb") as taken:
                    while number := memory.take(8):
                        taken.write(number)
                os._exit(0)
            os.close(end)
        taken = []
        for start, _ in pipes:
            with open(start, "rb") as end:
                while number := end.read(8):
                    taken.append(int.from_bytes(number, "little"))
        for child in children:
            os.waitpid(child, 0)
        assert sorted(taken) == list(range(offered))
        assert memory.take(8) == b""


def test_memory_grows_and_another_process_sees_what_was_written() -> None:
    memory = Memory()
    memory.room(10)[:5] = b"hello"
    child = os.fork()
    if child == 0:
        memory.room(1_000_000)[999_990:999_995] = b"world"
        os._exit(0)
    os.waitpid(child, 0)
    assert memory.room(10)[:5] == b"hello"
    assert memory.room(1_000_000)[999_990:999_995] == b"world"


def test_bytes_are_counted_as_they_travel() -> None:
    assert nbytes({"model": torch.zeros(10), "count": 3, "share": 0.5}) == 40 + 8 + 8
