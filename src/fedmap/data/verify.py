"""What is there and whether it is whole: the answers behind `fedmap data list` and `fedmap data
check`."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedmap.data.download import md5
from fedmap.data.files import idx
from fedmap.data.locate import find, lookup
from fedmap.data.official import cifar, cinic, femnist, mnist
from fedmap.data.official.manifest import FEMNIST_WRITERS, OFFICIAL, Official
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
        if name not in OFFICIAL:
            rows.append(Listed(name, source.line, None, "built in"))
            continue
        folder, place = lookup(OFFICIAL[name], data_dir) or (None, "")
        rows.append(Listed(name, source.line, folder, place))
    return sorted(rows, key=lambda row: (row.place != "built in", row.name))


@dataclass
class Report:
    """What a check found. A set that is only a part of the official one passes; one with other
    content does not."""

    name: str
    folder: Path
    facts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # less than the official set
    wrong: list[str] = field(default_factory=list)  # other than the official set

    @property
    def verdict(self) -> str:
        if self.wrong:
            return f"not the official set: {'; '.join(self.wrong)}"
        return (
            f"a part of the official set, usable: {'; '.join(self.missing)}"
            if self.missing
            else "complete official set"
        )

    def counted(self, what: str, found: int, official: int) -> None:
        self.facts.append(f"{found:,} {what}")
        if found < official:
            self.missing.append(f"{found:,} of {official:,} {what}")
        elif found > official:
            self.wrong.append(f"{found:,} {what} where {official:,} are official")

    def summed(self, path: Path, found: str, official: str) -> None:
        if found == official:
            self.facts.append(f"{path.name}: MD5 {found}, as published")
        else:
            self.wrong.append(f"{path.name} has MD5 {found}, published is {official}")


def check(name: str, data_dir: Path | None = None) -> Report:
    """Read the whole set from its official files, never from the cache, and compare counts and
    published checksums."""
    if name not in OFFICIAL:
        raise FedmapError(
            f"there are no official files to check for {name!r}; {nearest(name, OFFICIAL)}"
        )
    official = OFFICIAL[name]
    report = Report(name, find(official, data_dir))
    CHECKS[name](report, official)
    return report


def _check_idx(report: Report, official: Official) -> None:
    """Sums are of the uncompressed data: compressed files differ between those who compressed them."""
    for part, count in (("train", official.train), ("test", official.test)):
        arrays = dict(zip(("images", "labels"), mnist.read_part(report.folder, part), strict=True))
        report.counted(f"{part} images", len(arrays["labels"]), count)
        for kind, array in arrays.items():
            path = mnist.find_file(report.folder, part, kind)
            name = path.name.removesuffix(".gz").replace(".idx", "-idx")
            report.summed(
                path,
                hashlib.md5(idx.encode(array), usedforsecurity=False).hexdigest(),
                official.md5[name],
            )


def _check_cifar(report: Report, official: Official) -> None:
    files = cifar.find_files(report.name, report.folder)
    counts = [len(cifar.read_file(path, cifar.LAYOUTS[report.name])[1]) for path in files]
    report.counted("train images", sum(counts[:-1]), official.train)
    report.counted("test images", counts[-1], official.test)
    for path in files:
        report.summed(path, md5(path), official.md5[path.name])


def _check_cinic(report: Report, official: Official) -> None:
    """CINIC-10 publishes no sums of single files: every image is decoded and counted."""
    files = cinic.find_files(report.folder)
    cinic.decode(files)
    for part, count in (("train", official.train), ("test", official.test)):
        sizes = [len(entries) for entries in files[part]]
        report.counted(f"{part} images", sum(sizes), count)
        report.facts.append(f"{min(sizes):,} to {max(sizes):,} {part} images a class")


def _check_femnist(report: Report, official: Official) -> None:
    """LEAF publishes no sums, because its script makes the files: every sample is read and counted."""
    files = femnist.find_files(report.folder)
    arrays = femnist.decode(files)
    sizes = np.bincount(arrays["owner"])
    report.counted("writers", len(sizes), FEMNIST_WRITERS)
    report.counted("samples", len(arrays["y"]), official.train)
    report.facts.append(
        f"{sizes.min()} to {sizes.max()} samples a writer, {len(np.unique(arrays['y']))} of 62 "
        f"classes, {len(files)} files"
    )


CHECKS: dict[str, Callable[[Report, Official], None]] = {
    "fashion-mnist": _check_idx,
    "mnist": _check_idx,
    "cifar-10": _check_cifar,
    "cifar-100": _check_cifar,
    "cinic-10": _check_cinic,
    "femnist": _check_femnist,
}
