"""What not every system has, each with what stands in for it elsewhere: locks on files, reading and
writing at a place, bringing a file's content to the disk."""

import os
import sys

try:
    import fcntl as fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

BINARY = getattr(os, "O_BINARY", 0)  # Windows would change ends of lines


def lock(fd: int) -> None:
    """Have an open file for this process and those that it forks alone, until all of them have
    closed it or are gone; an OSError where somebody else has it."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    elif sys.platform == "win32":
        import msvcrt

        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)


def wait_for(file: int) -> None:
    """Have an open file or folder for this process alone as soon as nobody else has it; Windows
    has no such lock."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)


def read_at(fd: int, into: memoryview, place: int) -> int:
    """Read bytes that begin at a place of a file; how many there were."""
    if hasattr(os, "preadv"):
        return os.preadv(fd, [into], place)
    os.lseek(fd, place, os.SEEK_SET)
    found = os.read(fd, len(into))
    into[: len(found)] = found
    return len(found)


def write_at(fd: int, data: memoryview, place: int) -> int:
    """Write bytes to a place of a file; how many were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(fd, data, place)
    os.lseek(fd, place, os.SEEK_SET)
    return os.write(fd, data)


def sync_content(fd: int) -> None:
    """Bring a file's content to the disk."""
    getattr(os, "fdatasync", os.fsync)(fd)
