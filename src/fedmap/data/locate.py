"""Where data lies: the places that are searched, in order, and how a set's folder is recognized."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

VARIABLE = "FEDMAP_DATA"
DEBIAN = Path("/usr/share/datasets")  # of Debian's package dataset-fashion-mnist


def cache_dir() -> Path:
    """The user's cache for fedmap. Without a home it is a folder that does not exist, and nothing
    is kept."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return (base if base.is_absolute() else Path("/nonexistent")) / "fedmap"


def places(data_dir: Path | None = None) -> list[tuple[Path, str]]:
    """The folders that are searched, first to last, and what each is called."""
    variable = os.environ.get(VARIABLE)
    named = [
        (data_dir, "--data-dir"),
        (Path(variable) if variable else None, VARIABLE),
        (cache_dir(), "cache"),
        (DEBIAN, "Debian"),
    ]
    return [(place.expanduser().absolute(), what) for place, what in named if place is not None]


def lookup(
    folders: Sequence[str], marks: Sequence[str], data_dir: Path | None = None
) -> tuple[Path, str] | None:
    """The first folder of a usual name with a file that matches a mark, and what the place is
    called in which it lies; or None."""
    for place, what in places(data_dir):
        for folder in candidates(place, folders):
            if has_mark(folder, marks):
                return folder, what
    return None


def candidates(place: Path, folders: Sequence[str]) -> Iterator[Path]:
    """Folders below the place that have a usual name; the place itself too, if it has one."""
    for folder in folders:
        parts = Path(folder).parts
        yield place.joinpath(*parts)
        for k in range(1, len(parts) + 1):
            if place.parts[-k:] == parts[:k]:
                yield place.joinpath(*parts[k:])


def has_mark(folder: Path, marks: Sequence[str]) -> bool:
    """Is this a folder with a file that matches one of the marks?"""
    return folder.is_dir() and any(next(folder.glob(mark), None) is not None for mark in marks)
