"""Reader and writer of idx files (MNIST's format), plain or gzip. A file whose content does not
fit its header is refused."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt

from fedmap.data.files.regular import require_regular
from fedmap.errors import FedmapError

CAP = 1 << 29  # 512 MiB; the largest official file has 47 MB
GZIP_RATIO = 1040  # gzip shrinks at most 1032 to 1, so a small file cannot hold a large array
CHUNK = 1 << 20
UBYTE = 8


def read(path: Path, dims: int) -> npt.NDArray[np.uint8]:
    """The array of unsigned bytes in an idx file that must have this many dimensions."""
    require_regular(path)
    try:
        with path.open("rb") as raw:
            zipped = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            room = path.stat().st_size * (GZIP_RATIO if zipped else 1)
            file = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if zipped else raw
            return _parse(file, path, dims, room)
    except EOFError as error:
        raise FedmapError(f"{path}: the gzip file is cut off; get it again") from error
    except (OSError, zlib.error) as error:
        raise FedmapError(f"{path}: cannot be read ({error})") from error


def _parse(file: BinaryIO, path: Path, dims: int, room: int) -> npt.NDArray[np.uint8]:
    head = file.read(4 + 4 * dims)
    if head[:4] != bytes((0, 0, UBYTE, dims)):
        raise FedmapError(
            f"{path}: not an idx file of {dims}-dimensional bytes: it starts with "
            f"{head[:4].hex(' ') or 'nothing'}, not 00 00 08 {dims:02x}"
        )
    if len(head) < 4 + 4 * dims:
        raise FedmapError(f"{path}: the file ends within its header")
    shape = struct.unpack(f">{dims}I", head[4:])
    size = math.prod(shape)
    if size > min(CAP, room):
        raise FedmapError(
            f"{path}: the header promises {' x '.join(map(str, shape))} bytes, more than "
            + ("is allowed" if size > CAP else "the file can hold")
        )
    data = np.empty(size, np.uint8)  # the system gives the memory only as it is filled
    done = 0
    while done < size:
        chunk = file.read(min(CHUNK, size - done))
        if not chunk:
            raise FedmapError(
                f"{path}: the header promises {size} bytes but the file has {done}; get it again"
            )
        data[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
        done += len(chunk)
    if file.read(1):
        raise FedmapError(f"{path}: there are bytes after the {size} that the header promises")
    return data.reshape(shape)


def encode(array: npt.NDArray[np.uint8]) -> bytes:
    """The content of an idx file as `read` accepts it."""
    magic = bytes((0, 0, UBYTE, array.ndim))
    return magic + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_gz(path: Path, array: npt.NDArray[np.uint8]) -> None:
    """Write an idx.gz file; the same array always gives the same bytes."""
    path.write_bytes(gzip.compress(encode(array), 9, mtime=0))
