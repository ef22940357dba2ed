"""Every reader on damaged files: whatever the bytes are, the answer is data or one FedmapError."""

import gzip
import io
import json
import pickle
import tarfile
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from writers import CIFAR, leaf_shard, python2

from fedmap.data import read_npz, read_parquet
from fedmap.data.files import archive, idx, images
from fedmap.data.official import femnist
from fedmap.errors import FedmapError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(256, size=(4, 3072), dtype=np.uint8)


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def picture(kind: str) -> bytes:
    image = Image.fromarray(PIXELS[0].reshape(32, 32, 3))
    return saved(lambda buffer: image.save(buffer, kind))


def tar(buffer: io.BytesIO) -> None:
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        info = tarfile.TarInfo("set/a.bin")
        info.size = 3000
        file.addfile(info, io.BytesIO(PIXELS.tobytes()))


def parquet(buffer: io.BytesIO) -> None:
    pyarrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    files.write_table(pyarrow.table({"a": [1.0, 2.0], "b": [3, 4], "y": ["p", "q"]}), buffer)


READERS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], object]]] = {
    "idx": (
        "images",
        lambda: idx.encode(PIXELS.reshape(-1, 32, 32)),
        lambda path: idx.read(path, 3),
    ),
    "idx.gz": (
        "images.gz",
        lambda: gzip.compress(idx.encode(PIXELS)),
        lambda path: idx.read(path, 2),
    ),
    "cifar binary": (
        "test.bin",
        lambda: np.concatenate([np.zeros((4, 2), np.uint8), PIXELS], 1).tobytes(),
        CIFAR["cifar-100"].read_file,
    ),
    "cifar python 2": (
        "test",
        lambda: python2(PIXELS, [1, 2, 3, 4]),
        CIFAR["cifar-10"].read_file,
    ),
    "cifar python": (
        "test",
        lambda: pickle.dumps({"data": PIXELS, "fine_labels": [1, 2, 3, 4]}, 4),
        CIFAR["cifar-100"].read_file,
    ),
    "femnist": (
        "a.json",
        lambda: json.dumps(leaf_shard({"w": [(1, 2), (3, 4)]})).encode(),
        femnist.read_file,
    ),
    **{
        kind: (
            f"image.{kind}",
            partial(picture, kind),
            lambda path: images.pixels(images.read(path), (8, 8), path),
        )
        for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm")
    },
    "npz": (
        "a.npz",
        lambda: saved(lambda buffer: np.savez(buffer, x=PIXELS, y=[1, 2, 3, 4])),
        lambda path: read_npz(path.parent),
    ),
    "npz compressed": (
        "a.npz",
        lambda: saved(lambda buffer: np.savez_compressed(buffer, x=PIXELS[:, :9], y=[*"pqrs"])),
        lambda path: read_npz(path.parent),
    ),
    "parquet": ("a.parquet", lambda: saved(parquet), lambda path: read_parquet(path.parent)),
    "tar.gz": (
        "a.tar.gz",
        lambda: saved(tar),
        lambda path: archive.unpack(path, path.parent / "out", 100_000),
    ),
}

# where a damage is, as a share of the file; both ends, where headers are, are tried more often
places = st.one_of(st.floats(0, 1), st.floats(0, 0.02), st.floats(0.98, 1))
damages = st.one_of(
    st.tuples(st.just("cut"), places, st.just(b"")),
    st.tuples(st.just("insert"), places, st.binary(min_size=1, max_size=8)),
    st.tuples(
        st.just("overwrite"),
        places,
        st.sampled_from(
            [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f\xff\xff\xff", b"99999999"]
        ),
    ),
    st.tuples(st.just("flip"), places, st.binary(min_size=1, max_size=1)),
)


def damaged(content: bytes, how: str, where: float, what: bytes) -> bytes:
    at = int(where * len(content))
    if how == "cut":
        return content[:at]
    if how == "insert":
        return content[:at] + what + content[at:]
    if how == "overwrite":
        return content[:at] + what + content[at + len(what) :]
    flipped = bytes(a ^ b for a, b in zip(content[at : at + 1], what, strict=False))
    return content[:at] + flipped + content[at + 1 :]


def survives(reader: str, content: bytes) -> None:
    name, _, read = READERS[reader]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        refusal = name
        try:
            read(path)
        except FedmapError as error:
            refusal = str(error)
        assert name in refusal


@pytest.mark.parametrize("reader", READERS)
def test_the_undamaged_file_is_read(reader: str, tmp_path: Path) -> None:
    name, make, read = READERS[reader]
    (tmp_path / name).write_bytes(make())
    read(tmp_path / name)


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=60, deadline=None)
@given(st.lists(damages, min_size=1, max_size=3))
def test_a_damaged_file_is_read_or_refused_in_one_sentence(
    reader: str, changes: list[tuple[str, float, bytes]]
) -> None:
    content = READERS[reader][1]()
    for change in changes:
        content = damaged(content, *change)
    survives(reader, content)


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=15, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_in_one_sentence(reader: str, content: bytes) -> None:
    if reader == "parquet":
        pytest.importorskip("pyarrow")
    survives(reader, content)
