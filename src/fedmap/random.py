"""Every random choice comes from a generator keyed by (seed, purpose, numbers such as round and
client), so that no choice depends on which process makes it, in which order, or on whether the run
was stopped in between."""

import zlib

import numpy as np


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """An independent stream of random numbers for one purpose."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *keys])


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """The same idea as one number, for code that draws from a torch generator."""
    return int(generator(seed, purpose, *keys).integers(2**63))
