"""MD5 sums, as publishers of datasets give them: they find damage, they are no protection."""

import hashlib
from pathlib import Path

from fedmap.data.files.regular import require_regular


def md5(content: Path | bytes) -> str:
    """The MD5 sum of a file or of bytes."""
    if isinstance(content, bytes):
        return hashlib.md5(content, usedforsecurity=False).hexdigest()
    require_regular(content)
    with content.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
