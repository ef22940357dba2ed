"""What the commands write, whole or not at all."""

from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.simulate.folder import write_atomically


def write(path: Path, content: str | bytes) -> None:
    """Write a file; a sentence says why it cannot be."""
    if not path.name:  # . and / and nothing at all
        raise FedmapError(f"cannot write {path}: it is a folder")
    try:
        write_atomically(path, content.encode() if isinstance(content, str) else content)
    except OSError as wrong:
        raise FedmapError(f"cannot write {path}: {wrong.strerror}") from None
