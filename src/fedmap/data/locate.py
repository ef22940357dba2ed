"""Where data lies: the places that are searched, in order, and what to say when a set is in none of
them."""

import os
from collections.abc import Iterator
from pathlib import Path

from fedmap.data.official.manifest import Official
from fedmap.errors import FedmapError

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


def candidates(place: Path, official: Official) -> Iterator[Path]:
    """Folders below the place that have a usual name; the place itself too, if it has one."""
    for folder in official.folders:
        parts = Path(folder).parts
        yield place.joinpath(*parts)
        for k in range(1, len(parts) + 1):
            if place.parts[-k:] == parts[:k]:
                yield place.joinpath(*parts[k:])


def is_set(folder: Path, official: Official) -> bool:
    return folder.is_dir() and any(
        next(folder.glob(mark), None) is not None for mark in official.marks
    )


def lookup(official: Official, data_dir: Path | None = None) -> tuple[Path, str] | None:
    """The folder with the set's official files and the name of the place it is in, or None."""
    for place, what in places(data_dir):
        for folder in candidates(place, official):
            if is_set(folder, official):
                return folder, what
    return None


def find(official: Official, data_dir: Path | None = None) -> Path:
    """The folder with the set's official files, or one message that says what to do."""
    found = lookup(official, data_dir)
    if found:
        return found[0]
    looked = ", ".join(
        f"{place} ({what}{'' if place.is_dir() else ', no such folder'})"
        for place, what in places(data_dir)
    )
    ways = [f"run `fedmap data get {official.name}`"] if official.remotes else []
    ways += [
        f"set {VARIABLE} (or give --data-dir) to the folder that holds it",
        *([official.advice] if official.advice else []),
    ]
    raise FedmapError(
        f"dataset {official.name} is not there: no folder {' or '.join(official.folders)} with "
        f"{' or '.join(official.marks)} in {looked}. "
        f"What to do: {'; or '.join(ways)}"
    )
