"""Unpacking of downloaded archives: regular files and folders only, nothing outside the target, no
more bytes than announced."""

import gzip
import shutil
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from fedmap.data.files.regular import require_regular
from fedmap.errors import FedmapError

LONGEST_READ = 1 << 24  # a hostile header would make tarfile read until the memory is full
MOST_FILES = 1_000_000


class _Bounded:
    """A stream that refuses to hand out a huge piece at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """The next bytes, if they are not too many."""
        if not 0 <= size <= LONGEST_READ:
            raise tarfile.TarError(f"a header asks for {size:,} bytes")
        return self._file.read(size)


def unpack(archive: Path, target: Path, cap: int) -> None:
    """Unpack a .tar.gz into the folder `target`, at most `cap` bytes in all."""
    require_regular(archive)
    try:
        with (
            gzip.open(archive) as raw,
            tarfile.open(fileobj=cast(BinaryIO, _Bounded(cast(BinaryIO, raw))), mode="r:") as tar,
        ):
            size, files = 0, 0
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it would keep them all
                path = _inside(target, member, archive)
                size, files = size + member.size, files + 1
                if size > cap or files > MOST_FILES:
                    raise FedmapError(
                        f"{archive}: unpacks to more than {cap:,} bytes or {MOST_FILES:,} files; "
                        "nothing of it is kept"
                    )
                _extract(tar, member, path)
            if raw.read(1 << 20).strip(b"\0"):  # also makes gzip check its sum
                raise tarfile.TarError("the archive is damaged")
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
        raise FedmapError(
            f"{archive}: cannot be unpacked ({error}); nothing of it is kept"
        ) from error


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    content = cast(BinaryIO, tar.extractfile(member))
    with path.open("xb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
    if path.stat().st_size != member.size:
        raise tarfile.TarError(f"{member.name} is cut off")


def _inside(target: Path, member: tarfile.TarInfo, archive: Path) -> Path:
    """The path of a member below the target, if it is a plain file or folder with a plain name."""
    name = PurePosixPath(member.name)
    if not (member.isreg() or member.isdir()) or member.issparse():
        raise FedmapError(
            f"{archive}: {member.name!r} is a link or a special file; "
            "nothing of the archive is kept"
        )
    if name.is_absolute() or ".." in name.parts or set(member.name) & set("\\:\0"):
        raise FedmapError(
            f"{archive}: {member.name!r} would lie outside the folder; "
            "nothing of the archive is kept"
        )
    return target / name
