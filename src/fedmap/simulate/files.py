"""How files that a run owns are opened: never through a symbolic link."""

import errno
import os
from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.simulate.system import BINARY


def open_own(path: Path, flags: int, mode: int = 0o666) -> int:
    """A descriptor of a file that only fedmap writes. What a symbolic link points to may be
    anybody's."""
    try:
        return os.open(path, flags | BINARY | getattr(os, "O_NOFOLLOW", 0), mode)
    except OSError as wrong:
        if wrong.errno == errno.ELOOP:
            raise linked(path) from None
        raise


def linked(path: Path) -> FedmapError:
    """The sentence for a symbolic link where a file or folder of a run should be."""
    return FedmapError(
        f"{path} is a symbolic link; fedmap writes nothing through one: remove it, or choose "
        "another folder"
    )
