"""What moves between server and clients: dictionaries of tensors. A plain number is a tensor
without dimensions. How such a dictionary lies in memory and in a file is said here too."""

import mmap
import zlib
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedmap.errors import FedmapError

Values = dict[str, Tensor]
Buffer = mmap.mmap | bytearray
ALIGNMENT = 64


def number(value: float) -> Tensor:
    """A plain number as a value: whole numbers as int64, others as float64."""
    return torch.tensor(value, dtype=torch.int64 if isinstance(value, int) else torch.float64)


def nbytes(values: Mapping[str, Tensor]) -> int:
    """What a dictionary weighs on the way."""
    return sum(tensor.nbytes for tensor in values.values())


def on(values: Mapping[str, Tensor], device: torch.device | str) -> Values:
    """The dictionary on a device. Plain numbers stay on the CPU wherever the rest goes: they steer
    what is done, and torch takes them beside tensors of any device."""
    return {name: value.to(device if value.dim() else "cpu") for name, value in values.items()}


class Entry(NamedTuple):
    """One tensor at an offset in some bytes."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


class Layout(NamedTuple):
    """Where each entry of a dictionary lies in some bytes."""

    entries: tuple[Entry, ...]
    nbytes: int

    @classmethod
    def of(cls, values: Mapping[str, Tensor]) -> "Layout":
        """The entries one after the other, each at an aligned place."""
        entries, end = [], 0
        for name, tensor in values.items():
            entries.append(Entry(name, tensor.dtype, tuple(tensor.shape), end))
            end += -(-tensor.nbytes // ALIGNMENT) * ALIGNMENT
        return cls(tuple(entries), end)

    def write(self, values: Mapping[str, Tensor], memory: Buffer, start: int = 0) -> None:
        """Copy the dictionary into the memory."""
        for view, tensor in zip(self.read(memory, start).values(), values.values(), strict=True):
            view.copy_(tensor)

    def read(self, memory: Buffer, start: int = 0) -> Values:
        """The dictionary as views of the memory."""
        return {entry.name: _view(entry, memory, start) for entry in self.entries}


def _view(entry: Entry, memory: Buffer, start: int) -> Tensor:
    count = prod(entry.shape)
    if not count:
        return torch.empty(entry.shape, dtype=entry.dtype)
    flat = torch.frombuffer(memory, dtype=entry.dtype, count=count, offset=start + entry.offset)
    return flat.view(entry.shape)


def save(values: Values, notes: dict[str, str] | None = None) -> bytes:
    """A dictionary as the content of a safetensors file, with notes in its header."""
    tensors = {name: tensor.contiguous() for name, tensor in values.items()}
    # Without tensors, empty notes would make a header that cannot be read.
    return safetensors.torch.save(tensors, notes or ({} if tensors else None))


def load(path: Path) -> Values:
    """The dictionary in a safetensors file."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as wrong:
        raise FedmapError(f"{path} cannot be read as a safetensors file: {wrong}") from None


def checksum(values: Mapping[str, Tensor], start: int = 0) -> int:
    """Of names and bytes, in the order of the names."""
    for name in sorted(values):
        start = zlib.crc32(name.encode(), start)
        start = zlib.crc32(values[name].contiguous().numpy().tobytes(), start)
    return start


def load_notes(path: Path) -> dict[str, str]:
    """The notes in the header of a safetensors file."""
    with safetensors.safe_open(path, framework="pt") as file:
        return dict(file.metadata() or {})


class Stored(Mapping[str, Tensor]):
    """The dictionary in a safetensors file, of which each entry is read when it is asked for, so
    that many of them need the memory of one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with safetensors.safe_open(path, framework="pt") as file:
            self._names = tuple(file.keys())

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        with safetensors.safe_open(self._path, framework="pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor

    def dimensions(self, name: str) -> int:
        """How many an entry has."""
        with safetensors.safe_open(self._path, framework="pt") as file:
            return len(file.get_slice(name).get_shape())

    def part(self, name: str, columns: slice) -> Tensor:
        """Some numbers of a vector, of which no more is read."""
        with safetensors.safe_open(self._path, framework="pt") as file:
            tensor: Tensor = file.get_slice(name)[columns]
            return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Placed(Mapping[str, Tensor]):
    """A dictionary of which each entry is brought to a device when it is asked for, so that many of
    them need the device's memory of one."""

    def __init__(self, values: Mapping[str, Tensor], device: torch.device) -> None:
        self._values = values
        self._device = device

    def __getitem__(self, name: str) -> Tensor:
        return on({name: self._values[name]}, self._device)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def part(values: Mapping[str, Tensor], name: str, columns: slice) -> Tensor:
    """Some numbers of an entry, counted as if it were a vector."""
    if isinstance(values, Stored) and values.dimensions(name) == 1:
        return values.part(name, columns)
    return values[name].reshape(-1)[columns]
