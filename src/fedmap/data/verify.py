"""What is there and whether it is whole: the answers behind `fedmap data list` and `fedmap data
check`."""

from dataclasses import dataclass
from pathlib import Path

from fedmap.data.official.base import OFFICIAL, Verification
from fedmap.data.registry import DATASETS
from fedmap.errors import FedmapError
from fedmap.registry import nearest


@dataclass(frozen=True)
class Listed:
    """One dataset and where it is: `built in`, or a folder and the place it is in, or nowhere."""

    name: str
    line: str
    folder: Path | None
    place: str


def listed(data_dir: Path | None = None) -> list[Listed]:
    """Every dataset, first those that need no files."""
    rows = []
    for name, source in DATASETS.items():
        folder, place = None, "built in"
        if name in OFFICIAL:
            folder, place = OFFICIAL[name].lookup(data_dir) or (None, "")
        rows.append(Listed(name, source.line, folder, place))
    return sorted(rows, key=lambda row: (row.place != "built in", row.name))


def check(name: str, data_dir: Path | None = None) -> Verification:
    """Read the whole set from its official files, never from the cache, and compare counts and
    published checksums."""
    if name not in OFFICIAL:
        raise FedmapError(
            f"there are no official files to check for {name!r}; {nearest(name, OFFICIAL)}"
        )
    official = OFFICIAL[name]
    report = Verification(name, official.find(data_dir))
    official.check(report)
    return report
