"""Only regular files are read: a pipe would keep a reader waiting for ever, and a device such as
/dev/zero has no end."""

import stat
from pathlib import Path

from fedmap.errors import FedmapError


def require_regular(path: Path) -> None:
    """Refuse a pipe, a device or a socket. (What is not there at all is the reader's to say.)"""
    try:
        kind = stat.S_IFMT(path.stat().st_mode)
    except OSError:
        return
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise FedmapError(
            f"{path}: not a regular file but a pipe, a device or a socket; save its content as a "
            "file first"
        )
