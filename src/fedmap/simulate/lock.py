"""Only one process at a time works in a folder. Forked processes share its lock, so it is held as
long as anybody lives who could write."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.simulate.files import open_own
from fedmap.simulate.system import lock, write_at

PATIENCE = 10.0  # seconds that the workers of a process that was killed may take to end
A_MOMENT = 0.5  # seconds in which a process that is just ending is gone


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file at this path. It is free again once this process and all that it forked
    meanwhile are gone, however they end."""
    began, fd = time.monotonic(), None
    while (fd := taken(path)) is None:
        if time.monotonic() > began + (A_MOMENT if owner_lives(path) else PATIENCE):
            raise busy(path.parent.parent)
        time.sleep(0.05)
    try:
        yield
    finally:
        os.close(fd)


def busy(folder: Path) -> FedmapError:
    """The sentence where somebody else has the lock."""
    return FedmapError(f"another process works in {folder}; wait for it or choose another folder")


def taken(path: Path) -> int | None:
    """The lock file's descriptor, if nobody else has the lock."""
    fd = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        lock(fd)
        # Who had it may have removed the file at its end; then this is nobody's lock.
        if not os.path.samestat(os.fstat(fd), os.stat(path)):
            raise BlockingIOError
        os.ftruncate(fd, 0)
        write_at(fd, memoryview(str(os.getpid()).encode()), 0)
        return fd
    except OSError:
        os.close(fd)
        return None


def held(path: Path) -> bool | None:
    """Does somebody have the lock now? None where this user may not ask. Whoever is about to take
    it tries more than once, so that asking does no harm."""
    try:
        fd = open_own(path, os.O_RDWR)
    except PermissionError:
        return None
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        lock(fd)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def owner_lives(path: Path) -> bool:
    """Does the process live that took the lock? Else only its workers hold it, and not for long."""
    if sys.platform == "win32":  # where the question below would end it
        return True
    try:
        os.kill(int(path.read_text()), 0)
    except (ProcessLookupError, FileNotFoundError, ValueError, OverflowError):
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True
