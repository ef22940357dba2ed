"""Every random choice comes from a generator keyed by (seed, purpose, numbers such as round and
client), so that no choice depends on which process makes it, in which order, or on whether the run
was stopped in between."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """An independent stream of random numbers for one purpose."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *keys])


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """The same idea as one number, for code that draws from a torch generator."""
    return int(generator(seed, purpose, *keys).integers(2**63))


@contextmanager
def seeded_torch(seed: int, purpose: str, *keys: int) -> Iterator[None]:
    """Inside, torch's global generator is seeded: a net's layers and their initialization draw from
    it. Afterwards it is as before."""
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(torch_seed(seed, purpose, *keys))
    try:
        yield
    finally:
        torch.default_generator.set_state(before)
