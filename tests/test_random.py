from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fedmap.random import generator, torch_seed


@given(st.integers(0, 2**32), st.integers(0, 10_000), st.integers(0, 10_000))
def test_the_same_key_gives_the_same_numbers(seed: int, round: int, client: int) -> None:
    a, b = (generator(seed, "batches", round, client).random(3).tolist() for _ in range(2))
    assert a == b


def test_every_part_of_the_key_counts() -> None:
    keys: list[Any] = [
        (0, "a", 1, 2),
        (1, "a", 1, 2),
        (0, "b", 1, 2),
        (0, "a", 2, 1),
        (0, "a", 1, 3),
        (0, "a", 1),
    ]
    assert len({generator(*key).random() for key in keys}) == len(keys)
    assert len({torch_seed(*key) for key in keys}) == len(keys)
