import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from peak_memory import peak_memory
from writers import number, python2, text

from fedmap.data.files import pickles
from fedmap.errors import FedmapError

X = np.random.default_rng(0).integers(256, size=(3, 3072), dtype=np.uint8)


@pytest.mark.parametrize(
    "content",
    [
        python2(X, [1, 2, 3]),
        *(pickle.dumps({"data": X, "labels": [1, 2, 3]}, protocol) for protocol in (3, 4)),
        pickle.dumps({b"data": np.asfortranarray(X), b"labels": [1, 2, 3]}, 4),
    ],
    ids=["python 2", "protocol 3", "protocol 4", "bytes as keys, Fortran order"],
)
def test_arrays_and_plain_containers_are_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "batch").write_bytes(content)
    found = pickles.read(tmp_path / "batch")
    assert np.array_equal(found["data"], X)
    assert found["labels"] == [1, 2, 3]


@pytest.mark.parametrize("kind", ["<i4", ">i4", "f8", "u1"])
def test_arrays_keep_their_type_and_byte_order(tmp_path: Path, kind: str) -> None:
    numbers = np.arange(6).reshape(2, 3).astype(kind)
    (tmp_path / "batch").write_bytes(pickle.dumps({"a": numbers}, 4))
    found = pickles.read(tmp_path / "batch")["a"]
    assert np.array_equal(found, numbers)
    assert found.dtype == numbers.dtype


class Runs:
    """A pickle of this makes a file when it is loaded carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    tmp_path: Path, protocol: int
) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": Runs(tmp_path / "ran")}, protocol))
    with pytest.raises(FedmapError, match=r"it asks for posix\.mkdir"):
        pickles.read(tmp_path / "batch")
    assert not (tmp_path / "ran").exists()


ARRAY = b"cnumpy\nndarray\n"
BYTE = b"cnumpy\ndtype\n" + text(b"u1") + b"\x85R"


def array(shape: bytes, dtype: bytes) -> bytes:
    """The pickle of an array that has one byte."""
    return ARRAY + b")R(K\x01(" + shape + b"t" + dtype + b"\x89" + text(b"x") + b"tb."


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n" + text(b"1") + b"\x85R.",
        b"(ibuiltins\neval\n.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"cnumpy\nload\n" + text(b"x") + b"\x85R.",
        b"\x82\x01.",  # an extension code
        b"Pid\n.",  # a persistent id
        array(number(2**31 - 1) * 2, BYTE),  # a shape that needs more bytes than there are
        array(number(-1) * 2, BYTE),
        array(number(1), text(b"u1")),
        b"cnumpy\ndtype\n" + text(b"O") + b"\x85R.",  # Python objects
        b"cnumpy\ndtype\n" + text(b"V2000000000") + b"\x85R.",
        ARRAY + b"}b.",
        ARRAY + b"(K\x01tb.",
        b"K\x01.",  # not a dictionary
        b"\x80\x05\x95" + b"\xff" * 8 + b".",  # a frame that is longer than the file
        b"\x8e" + b"\xff" * 7 + b"\x0f.",  # bytes that are longer than the file
        b"(" * 100_000 + b".",
        b"]" * 100_000 + b"a" * 99_999 + b".",
        b"",
        b".",
        b"rubbish",
    ],
)
def test_a_hostile_pickle_is_one_clear_error_and_takes_no_memory(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "batch"
    path.write_bytes(content)

    def read() -> None:
        with pytest.raises(FedmapError, match="batch: "):
            pickles.read(path)

    assert peak_memory(read) < 30_000_000


def test_a_huge_memo_index_takes_no_memory(tmp_path: Path) -> None:
    # harmless content, but the index is four thousand million
    (tmp_path / "batch").write_bytes(b"}r\xff\xff\xff\xff.")
    assert peak_memory(lambda: pickles.read(tmp_path / "batch")) < 1_000_000


def test_a_file_above_the_limit_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps({}))
    monkeypatch.setattr(pickles, "CAP", 3)
    with pytest.raises(FedmapError, match="more than the 3 that are allowed"):
        pickles.read(tmp_path / "batch")
