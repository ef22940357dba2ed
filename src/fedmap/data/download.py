"""Download of official archives: resumed after a break, checked, unpacked beside and renamed, so
that nothing half is ever found."""

import hashlib
import http.client
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from fedmap.data.files.archive import unpack
from fedmap.data.locate import VARIABLE, cache_dir, is_set, lookup
from fedmap.data.official.manifest import OFFICIAL, Official, Remote
from fedmap.errors import FedmapError
from fedmap.registry import nearest

CHUNK = 1 << 18
TIMEOUT = 30  # seconds without a byte
Progress = Callable[[str, int, int], None]  # file name, bytes there, bytes in all


def silent(_name: str, _done: int, _total: int) -> None:
    """No progress is shown."""


def get(name: str, data_dir: Path | None = None, progress: Progress = silent) -> Path:
    """The folder of the official set, downloaded if it is in none of the places where fedmap looks."""
    if name not in OFFICIAL:
        raise FedmapError(f"there is nothing to download for {name!r}; {nearest(name, OFFICIAL)}")
    official = OFFICIAL[name]
    found = lookup(official, data_dir)
    if found:
        return found[0]
    if not official.remotes:
        raise FedmapError(f"dataset {name} has no official archive to download: {official.advice}")
    variable = os.environ.get(VARIABLE)
    root = (data_dir or (Path(variable) if variable else cache_dir())).expanduser()
    try:
        root.mkdir(parents=True, exist_ok=True)
        return (_get_archive if official.unpacked else _get_files)(official, root, progress)
    except OSError as error:
        raise FedmapError(
            f"dataset {name} cannot be put into {root} ({error}); choose another folder with "
            "--data-dir"
        ) from error


def _get_files(official: Official, root: Path, progress: Progress) -> Path:
    """Files that are used as they are; they move to their folder when all are there, the one that
    marks the set last."""
    folder, part = root / official.folders[0], root / f"{official.folders[0]}.part"
    part.mkdir(exist_ok=True)
    for remote in official.remotes:
        fetch(remote, part / remote.name, progress)
    folder.mkdir(exist_ok=True)
    for remote in reversed(official.remotes):
        (part / remote.name).replace(folder / remote.name)
    part.rmdir()
    return folder


def _get_archive(official: Official, root: Path, progress: Progress) -> Path:
    (remote,) = official.remotes
    folder, archive = root / official.folders[0], root / remote.name
    fetch(remote, archive, progress)
    part = Path(tempfile.mkdtemp(prefix=f".{official.name}-", dir=root))
    try:
        unpack(archive, part, official.unpacked)
        inner = next(
            (path for path in (part, *sorted(part.iterdir())) if is_set(path, official)), None
        )
        if inner is None:
            raise FedmapError(f"{archive}: there is no {' or '.join(official.marks)} in it")
        inner.chmod(0o755)  # temporary folders are closed to others
        inner.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    archive.unlink()
    return folder


def fetch(remote: Remote, target: Path, progress: Progress = silent) -> None:
    """Download one file to its final name. A .part file of an earlier attempt is continued."""
    if target.is_file():
        return
    part = target.with_name(f"{target.name}.part")
    if not part.is_file() or part.stat().st_size < remote.size:
        _stream(remote, part, progress)
    there = part.stat().st_size
    if there < remote.size:
        raise FedmapError(_stopped(remote, there))
    if md5(part) != remote.md5:
        part.unlink()
        raise FedmapError(
            f"{remote.url}: what came is not the official file (its MD5 sum is not {remote.md5}); "
            "it was removed, try again"
        )
    part.replace(target)


def _stream(remote: Remote, part: Path, progress: Progress) -> None:
    """Append to the .part file until the connection ends, but no more than the file should have."""
    done = part.stat().st_size if part.is_file() else 0
    try:
        response = _open(remote, done)
    except HTTPError as error:
        raise FedmapError(
            f"{remote.url}: the server answers {error.code} {error.reason}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        raise FedmapError(
            f"{remote.url}: cannot be reached ({getattr(error, 'reason', error)}); is there a "
            "connection?"
        ) from error
    with response:
        if response.status == 206 and not (response.headers.get("Content-Range") or "").startswith(
            f"bytes {done}-"
        ):
            raise FedmapError(
                f"{remote.url}: the server sent another part than asked for; remove {part} and try "
                "again"
            )
        if response.status != 206:
            done = 0  # a server that knows no ranges sends all again
        with part.open("ab" if done else "wb") as file:
            while chunk := _read(response, remote, done):
                file.write(chunk)
                done += len(chunk)
                progress(remote.name, done, remote.size)


def _open(remote: Remote, start: int) -> http.client.HTTPResponse:
    if urlsplit(remote.url).scheme not in ("http", "https"):
        raise FedmapError(f"{remote.url}: only http and https addresses are allowed")
    headers = {"User-Agent": "fedmap"} | ({"Range": f"bytes={start}-"} if start else {})
    return cast(
        http.client.HTTPResponse, urlopen(Request(remote.url, headers=headers), timeout=TIMEOUT)
    )


def _read(response: http.client.HTTPResponse, remote: Remote, done: int) -> bytes:
    try:
        return response.read(min(CHUNK, remote.size - done))
    except (OSError, http.client.HTTPException) as error:
        raise FedmapError(f"{_stopped(remote, done)} ({error})") from error


def _stopped(remote: Remote, done: int) -> str:
    return f"{remote.url}: the download stopped after {done:,} of {remote.size:,} bytes; the same command goes on from there"


def md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
