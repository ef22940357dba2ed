"""Decoded sets as memory-mapped arrays in the user's cache: the second start is fast, and all
processes share one copy."""

import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedmap.data.locate import cache_dir

Arrays = dict[str, npt.NDArray[Any]]
VERSION = 1  # raise it when a reader starts to decode differently
ABANDONED = 24 * 3600  # seconds after which a half-written entry of a killed process is removed
FORGOTTEN = 60 * 24 * 3600  # seconds after which an entry that nobody read is removed

log = logging.getLogger(__name__)


def cached(
    name: str,
    files: Iterable[Path | os.DirEntry[str]],
    decode: Callable[[], Arrays],
    *settings: object,
) -> Arrays:
    """The decoded arrays, from the cache if the same files were decoded before with the same
    settings. A cache that fails never stops a run."""
    entry = cache_dir() / "decoded" / f"{name}-{_key(name, files, settings)}"
    try:
        return _read(entry)
    except Exception:  # not there, or damaged in any way: decode (again)
        pass
    arrays = decode()
    problem: Exception | None = None
    try:
        _write(entry, arrays)
    except OSError as error:
        problem = error
    try:
        return _read(entry)  # what was just written, or what a faster process wrote
    except Exception as error:
        log.warning("%s is not kept in the cache %s: %s", name, entry.parent, problem or error)
        return arrays


def _key(name: str, files: Iterable[Path | os.DirEntry[str]], settings: tuple[object, ...]) -> str:
    """Names the content: a source file that changed its path, size or time gives another key."""
    digest = hashlib.sha256(repr((VERSION, name, settings)).encode())
    for file in files:
        stat = file.stat()
        entry = f"{os.path.abspath(file)}\0{stat.st_size}\0{stat.st_mtime_ns}\0"
        digest.update(entry.encode(errors="surrogateescape"))
    return digest.hexdigest()[:24]


def _read(entry: Path) -> Arrays:
    """Copy-on-write maps: torch wants writable memory, yet no page is copied as long as nobody
    writes."""
    arrays: Arrays = {}
    for name in (entry / "names").read_text().split():
        arrays[name] = np.load(entry / f"{name}.npy", mmap_mode="c", allow_pickle=False)
    with suppress(OSError):  # a cache that cannot be written to serves all the same
        os.utime(entry)  # read now: not forgotten
    return arrays


def _write(entry: Path, arrays: Arrays) -> None:
    """Write to a temporary folder and rename it, so that an entry is there whole or not at all."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    _remove_old(entry.parent)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=entry.parent))
    try:
        for name, array in arrays.items():
            np.save(part / f"{name}.npy", array, allow_pickle=False)
        (part / "names").write_text("\n".join(arrays))
        shutil.rmtree(entry, ignore_errors=True)  # it was there but could not be read
        part.rename(entry)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _remove_old(folder: Path) -> None:
    """Remove what killed processes left, and what nobody has read for long."""
    for entry in folder.iterdir():
        age = ABANDONED if entry.name.startswith(".part-") else FORGOTTEN
        with suppress(FileNotFoundError):  # another process tidies up too
            if entry.stat().st_mtime < time.time() - age:
                shutil.rmtree(entry, ignore_errors=True)
