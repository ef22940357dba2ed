"""Every random choice comes from a generator keyed by (seed, purpose, numbers such as round and
client), so that no choice depends on which process makes it, in which order, or on whether the run
was stopped in between."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch

from fedmap.devices import KINDS


def generator(seed: int, purpose: str, *keys: int) -> np.random.Generator:
    """An independent stream of random numbers for one purpose."""
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), *keys])


def torch_seed(seed: int, purpose: str, *keys: int) -> int:
    """The same idea as one number, for code that draws from a torch generator."""
    return int(generator(seed, purpose, *keys).integers(2**63))


@contextmanager
def seeded_torch(seed: int, purpose: str, *keys: int, kind: str = "cpu") -> Iterator[None]:
    """Inside, torch's global generator is seeded: a net's layers and their initialization draw from
    it. Layers on another kind of device draw from that device's own. Afterwards all is as
    before."""
    drawn = torch_seed(seed, purpose, *keys)
    before = torch.default_generator.get_state()
    torch.default_generator.manual_seed(drawn)
    try:
        with _seeded_there(drawn, kind) if kind in KINDS else nullcontext():
            yield
    finally:
        torch.default_generator.set_state(before)


@contextmanager
def _seeded_there(seed: int, kind: str) -> Iterator[None]:
    device = torch.get_device_module(kind)
    before = device.get_rng_state()
    device.manual_seed(seed)
    try:
        yield
    finally:
        device.set_rng_state(before)
