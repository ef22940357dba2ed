"""Memory that several processes see, so that nothing big is ever pickled."""

import mmap
import os
import tempfile
import weakref

from fedmap.simulate.system import fcntl


class Memory:
    """A run of bytes shared with the processes forked after its making; it grows when more is asked
    for."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            self.fd = os.memfd_create("fedmap")
        else:
            with tempfile.TemporaryFile() as file:
                self.fd = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.fd)
        self._map: mmap.mmap | None = None

    def offer(self, content: bytes) -> None:
        """Have this content, for all processes together to `take`."""
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, content, 0)
        os.lseek(self.fd, 0, os.SEEK_SET)

    def take(self, size: int) -> bytes:
        """The next bytes that nobody has taken; nothing at the end. Forked processes share the
        place up to which a file is read, but not every system moves it in one step with the
        reading."""
        fcntl.lockf(self.fd, fcntl.LOCK_EX)
        try:
            return os.read(self.fd, size)
        finally:
            fcntl.lockf(self.fd, fcntl.LOCK_UN)

    def room(self, size: int) -> mmap.mmap:
        """The memory with at least this many bytes. Views of an earlier, smaller mapping stay
        valid: same bytes."""
        if self._map is None or len(self._map) < size:
            # Twice as much each time: a mapping has a file descriptor as long as it has views.
            size = max(size, 2 * len(self._map) if self._map else mmap.PAGESIZE)
            if os.fstat(self.fd).st_size < size:
                os.ftruncate(self.fd, size)
            self._map = mmap.mmap(self.fd, size)
        return self._map
