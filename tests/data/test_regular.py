"""Pipes and devices in the place of files."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedmap.data import load
from fedmap.data.files import checksum, idx, images, pickles
from fedmap.errors import FedmapError
from fedmap.simulate.settings import read_toml

READERS: dict[str, Callable[[Path], Any]] = {
    "idx": lambda path: idx.read(path, 1),
    "image": images.read,
    "pickle": pickles.read,
    "md5": checksum.md5,
    "csv": lambda path: load(f"csv:{path}"),
    "npz": lambda path: load(f"npz:{path}"),
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_regular_file_is_refused_at_once(reader: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(FedmapError, match=f"{path}: not a regular file but a pipe, a device"):
        READERS[reader](path)


@pytest.mark.parametrize("kind", ["csv", "npz", "parquet"])
def test_a_pipe_among_the_clients_files_is_refused(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"oslo.{kind}")
    with pytest.raises(FedmapError, match=rf"oslo\.{kind}: not a regular file"):
        load(f"{kind}:{tmp_path}")


def test_a_pipe_among_the_images_is_refused(tmp_path: Path) -> None:
    for client in ("a", "b"):
        (tmp_path / client / "cat").mkdir(parents=True)
        os.mkfifo(tmp_path / client / "cat" / "1.png")
    with pytest.raises(FedmapError, match="not a regular file"):
        load(f"folder:{tmp_path}")


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin"])
def test_settings_are_not_read_from_a_device(path: str) -> None:
    with pytest.raises(FedmapError, match=f"there is no file {path}"):
        read_toml(Path(path))
