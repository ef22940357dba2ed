"""Dictionaries of tensors and numbers in memory that several processes see, so that nothing big is
ever pickled."""

import fcntl
import mmap
import os
import tempfile
import weakref
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from fedmap.methods import Values

ALIGNMENT = 64


class Entry(NamedTuple):
    """One tensor, or one number (shape None), at an offset of a run of bytes."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...] | None
    offset: int


class Layout(NamedTuple):
    """Where each entry of a dictionary lies in a run of bytes."""

    entries: tuple[Entry, ...]
    nbytes: int

    @classmethod
    def of(cls, values: Values) -> "Layout":
        entries, end = [], 0
        for name, value in values.items():
            if isinstance(value, Tensor):
                entry = Entry(name, value.dtype, tuple(value.shape), end)
            else:
                entry = Entry(
                    name, torch.int64 if isinstance(value, int) else torch.float64, None, end
                )
            entries.append(entry)
            size = prod(entry.shape or ()) * entry.dtype.itemsize
            end += -(-size // ALIGNMENT) * ALIGNMENT
        return cls(tuple(entries), end)

    def _views(self, memory: "mmap.mmap | bytearray", start: int) -> list[Tensor]:
        return [
            torch.frombuffer(
                memory, dtype=e.dtype, count=prod(e.shape or ()), offset=start + e.offset
            ).view(e.shape or ())
            if prod(e.shape or ())
            else torch.empty(e.shape or (), dtype=e.dtype)
            for e in self.entries
        ]

    def write(self, values: Values, memory: "mmap.mmap | bytearray", start: int = 0) -> None:
        for view, value in zip(self._views(memory, start), values.values(), strict=True):
            if isinstance(value, Tensor):
                view.copy_(value)
            else:
                view.fill_(value)

    def read(self, memory: "mmap.mmap | bytearray", start: int = 0) -> Values:
        """Tensors are views of the memory; numbers are plain Python numbers."""
        views = self._views(memory, start)
        return {
            e.name: view.item() if e.shape is None else view
            for e, view in zip(self.entries, views, strict=True)
        }


def nbytes(values: Values) -> int:
    """What a dictionary weighs on the way: its tensors, and eight bytes for a number."""
    return sum(v.nbytes if isinstance(v, Tensor) else 8 for v in values.values())


class Memory:
    """A run of bytes shared with the processes forked after its making; it grows when more is asked
    for."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("fedmap")
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.fd)
        self._map: mmap.mmap | None = None

    def offer(self, content: bytes) -> None:
        """Have this content, for all processes together to `take`."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, content, 0)
        os.lseek(self.fd, 0, os.SEEK_SET)

    def take(self, size: int) -> bytes:
        """The next bytes that nobody has taken; nothing at the end. Forked processes share the
        place up to which a file is read, but not every system moves it in one step with the
        reading."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            return os.read(self.fd, size)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def room(self, size: int) -> mmap.mmap:
        """The memory with at least this many bytes. Views of an earlier, smaller mapping stay
        valid: same bytes."""
        if self._map is None or len(self._map) < size:
            size = max(size, mmap.PAGESIZE)
            if os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size)
            self._map = mmap.mmap(self.fd, size)
        return self._map
