"""Download of official archives: continued after a break, checked, unpacked in a temporary folder
and renamed, so that nobody ever finds half a set."""

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
from fedmap.data.files.checksum import md5
from fedmap.data.locate import VARIABLE, cache_dir, has_mark
from fedmap.data.official.base import OFFICIAL, OfficialSet, RemoteFile
from fedmap.errors import FedmapError
from fedmap.registry import nearest

CHUNK = 1 << 18
TIMEOUT = 30  # seconds without a byte
Progress = Callable[[str, int, int], None]  # file name, bytes there, bytes in all


def silent(_name: str, _done: int, _total: int) -> None:
    """No progress is shown."""


def get(name: str, data_dir: Path | None = None, progress: Progress = silent) -> Path:
    """The folder of the official set, downloaded if it is in none of the searched places."""
    if name not in OFFICIAL:
        raise FedmapError(f"there is nothing to download for {name!r}; {nearest(name, OFFICIAL)}")
    official = OFFICIAL[name]
    found = official.lookup(data_dir)
    if found:
        return found[0]
    if not official.remote_files:
        raise FedmapError(f"dataset {name} has no official archive to download: {official.advice}")
    variable = os.environ.get(VARIABLE)
    root = (data_dir or (Path(variable) if variable else cache_dir())).expanduser()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if official.unpacked_limit:
            return _get_archive(official, root, progress)
        return _get_files(official, root, progress)
    except OSError as error:
        raise FedmapError(
            f"dataset {name} cannot be put into {root} ({error}); "
            "choose another folder with --data-dir"
        ) from error


def _get_files(official: OfficialSet, root: Path, progress: Progress) -> Path:
    """Files that are used as they are. They move to their folder when all are there; the first,
    which marks the set, moves last."""
    folder, part = root / official.folders[0], root / f"{official.folders[0]}.part"
    part.mkdir(exist_ok=True)
    for remote in official.remote_files:
        fetch(remote, part / remote.name, progress)
    folder.mkdir(exist_ok=True)
    for remote in reversed(official.remote_files):
        (part / remote.name).replace(folder / remote.name)
    part.rmdir()
    return folder


def _get_archive(official: OfficialSet, root: Path, progress: Progress) -> Path:
    (remote,) = official.remote_files
    folder, archive = root / official.folders[0], root / remote.name
    fetch(remote, archive, progress)
    part = Path(tempfile.mkdtemp(prefix=f".{official.name}-", dir=root))
    try:
        unpack(archive, part, official.unpacked_limit)
        folders = [part, *sorted(part.iterdir())]
        whole = next((path for path in folders if has_mark(path, official.marks)), None)
        if whole is None:
            raise FedmapError(f"{archive}: there is no {' or '.join(official.marks)} in it")
        whole.chmod(0o755)  # temporary folders are closed to others
        whole.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    archive.unlink()
    return folder


def fetch(remote: RemoteFile, target: Path, progress: Progress = silent) -> None:
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
            f"{remote.url}: the download is not the official file (its MD5 sum is not "
            f"{remote.md5}); it was removed, try again"
        )
    part.replace(target)


def _stream(remote: RemoteFile, part: Path, progress: Progress) -> None:
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
            f"{remote.url}: cannot be reached ({getattr(error, 'reason', error)}); "
            "is there a connection?"
        ) from error
    with response:
        if response.status != 206:
            done = 0  # a server that knows no ranges sends all again
        elif not (response.headers.get("Content-Range") or "").startswith(f"bytes {done}-"):
            raise FedmapError(
                f"{remote.url}: the server sent another part than asked for; "
                f"remove {part} and try again"
            )
        with part.open("ab" if done else "wb") as file:
            while chunk := _read(response, remote, done):
                file.write(chunk)
                done += len(chunk)
                progress(remote.name, done, remote.size)


def _open(remote: RemoteFile, start: int) -> http.client.HTTPResponse:
    if urlsplit(remote.url).scheme not in ("http", "https"):
        raise FedmapError(f"{remote.url}: only http and https addresses are allowed")
    headers = {"User-Agent": "fedmap"} | ({"Range": f"bytes={start}-"} if start else {})
    request = Request(remote.url, headers=headers)
    return cast(http.client.HTTPResponse, urlopen(request, timeout=TIMEOUT))


def _read(response: http.client.HTTPResponse, remote: RemoteFile, done: int) -> bytes:
    try:
        return response.read(min(CHUNK, remote.size - done))
    except (OSError, http.client.HTTPException) as error:
        raise FedmapError(f"{_stopped(remote, done)} ({error})") from error


def _stopped(remote: RemoteFile, done: int) -> str:
    return (
        f"{remote.url}: the download stopped after {done:,} of {remote.size:,} bytes; "
        "the same command goes on from there"
    )
