import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from peak_memory import peak_memory

from fedmap.data.files import idx
from fedmap.errors import FedmapError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)


def header(*shape: int, magic: bytes = b"") -> bytes:
    return (magic or bytes((0, 0, 8, len(shape)))) + struct.pack(f">{len(shape)}I", *shape)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_what_is_encoded_is_read_back(tmp_path: Path, pack) -> None:
    path = tmp_path / "images"
    path.write_bytes(pack(idx.encode(IMAGES)))
    assert np.array_equal(idx.read(path, 3), IMAGES)


def test_the_same_array_gives_the_same_gz_file(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        idx.write_gz(tmp_path / name, IMAGES)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert np.array_equal(idx.read(tmp_path / "a.gz", 3), IMAGES)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "starts with nothing"),
        (
            header(5, magic=b"\x00\x00\x09\x01") + b"12345",
            "starts with 00 00 09 01, not 00 00 08 01",
        ),
        (idx.encode(IMAGES), "not an idx file of 1-dimensional bytes"),
        (header(5)[:6], "ends within its header"),
        (header(5) + b"1234", "promises 5 bytes but the file has 4"),
        (header(500) + b"1234", "more than the file can hold"),
        (header(2**32 - 1) + b"1234", "more than is allowed"),
        (header(3) + b"1234", "bytes after the 3"),
        (gzip.compress(header(5) + b"12345", mtime=0)[:-9], "cut off"),
        (gzip.compress(header(5) + b"1234", mtime=0), "promises 5 bytes but the file has 4"),
        (gzip.compress(header(5) + b"123456", mtime=0), "bytes after the 5"),
        (gzip.compress(header(5) + b"12345", mtime=0) + b"rubbish", "cannot be read"),
        (b"\x1f\x8b" + b"\xff" * 20, "cannot be read"),
    ],
)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_a_broken_file_is_refused_by_name_and_reason(
    tmp_path: Path, content: bytes, says: str, end: str
) -> None:
    path = tmp_path / f"labels{end}"
    path.write_bytes(content)
    with pytest.raises(FedmapError, match=says) as error:
        idx.read(path, 1)
    assert str(path) in str(error.value)


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="nowhere"):
        idx.read(tmp_path / "nowhere", 1)


@pytest.mark.parametrize("promise", [100, 400_000_000, 600_000_000])
def test_a_gzip_bomb_takes_no_memory(tmp_path: Path, promise: int) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(header(promise) + bytes(20_000_000), 9))

    def read() -> None:
        with pytest.raises(FedmapError):
            idx.read(path, 1)

    assert peak_memory(read) < 3_000_000
