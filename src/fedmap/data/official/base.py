"""What an official set is: one class that holds everything that fedmap knows about the set."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import DirEntry
from pathlib import Path
from typing import Any, TypeVar

import torch

from fedmap.data.cache import Arrays, cached
from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.locate import VARIABLE, lookup, places
from fedmap.data.registry import register_dataset
from fedmap.errors import FedmapError


@dataclass(frozen=True)
class RemoteFile:
    """One file to download, with its published size and MD5 sum."""

    url: str
    md5: str
    size: int
    file: str = ""  # the file's name, where the address does not end with it

    @property
    def name(self) -> str:
        """The name under which the file is stored."""
        return self.file or self.url.rsplit("/", 1)[1]


@dataclass
class Verification:
    """What a check found. A set that is only a part of the official one passes; one with other
    content does not."""

    name: str
    folder: Path
    facts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # less than the official set
    wrong: list[str] = field(default_factory=list)  # other than the official set

    @property
    def verdict(self) -> str:
        """The result of the check in one line."""
        if self.wrong:
            return f"not the official set: {'; '.join(self.wrong)}"
        if self.missing:
            return f"a part of the official set, usable: {'; '.join(self.missing)}"
        return "complete official set"

    def compare_count(self, what: str, found: int, official: int) -> None:
        """Note how many samples (or clients) there are, and how many there should be."""
        self.facts.append(f"{found:,} {what}")
        if found < official:
            self.missing.append(f"{found:,} of {official:,} {what}")
        elif found > official:
            self.wrong.append(f"{found:,} {what} where {official:,} are official")

    def compare_md5(self, path: Path, found: str, published: str) -> None:
        """Note whether a file has the published checksum."""
        if found == published:
            self.facts.append(f"{path.name}: MD5 {found}, as published")
        else:
            self.wrong.append(f"{path.name} has MD5 {found}, published is {published}")


class OfficialSet(ABC):
    """Base of the official sets. A subclass says what is known about one set, how its files are
    decoded and how they are checked."""

    name: str
    line: str  # what it is, for `fedmap datasets`
    defaults: Defaults  # the paper's settings
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    augment: bool = False

    # A folder is taken for the set when it has a usual name and a file that matches a mark.
    folders: tuple[str, ...]  # a download goes to the first
    marks: tuple[str, ...]
    remote_files: tuple[RemoteFile, ...] = ()
    unpacked_limit: int = 0  # bytes that the archive may unpack to; 0: the files are no archive
    advice: str = ""  # another way to get the set, for the message when it is missing

    @abstractmethod
    def files(self, folder: Path) -> Sequence[Path | DirEntry[str]]:
        """The files that are decoded, always in the same order."""

    @abstractmethod
    def decode(self, folder: Path) -> Arrays:
        """The arrays that `dataset` takes: train_x, train_y, test_x and test_y."""

    @abstractmethod
    def check(self, report: Verification) -> None:
        """Read all files in the report's folder and note what is there, missing and wrong."""

    def dataset(self, arrays: Arrays) -> Dataset:
        """The Dataset of the decoded arrays."""
        parts: dict[str, Any] = {part: torch.from_numpy(array) for part, array in arrays.items()}
        return Dataset(
            self.name,
            **parts,
            classes=self.classes,
            mean=self.mean,
            std=self.std,
            augment=self.augment,
            defaults=self.defaults,
        )

    def load(self, data_dir: Path | None = None) -> Dataset:
        """The Dataset from the official files, or from the cache if they were decoded before."""
        folder = self.find(data_dir)
        return self.dataset(cached(self.name, self.files(folder), lambda: self.decode(folder)))

    def lookup(self, data_dir: Path | None = None) -> tuple[Path, str] | None:
        """The folder with the official files and the name of the place it is in, or None."""
        return lookup(self.folders, self.marks, data_dir)

    def find(self, data_dir: Path | None = None) -> Path:
        """The folder with the official files, or an error that says what to do."""
        found = self.lookup(data_dir)
        if found:
            return found[0]
        searched = ", ".join(
            f"{place} ({what}{'' if place.is_dir() else ', no such folder'})"
            for place, what in places(data_dir)
        )
        ways = [f"set {VARIABLE} (or give --data-dir) to the folder that holds it"]
        if self.remote_files:
            ways.insert(0, f"run `fedmap data get {self.name}`")
        if self.advice:
            ways.append(self.advice)
        raise FedmapError(
            f"dataset {self.name} is not there: no folder {' or '.join(self.folders)} with "
            f"{' or '.join(self.marks)} in {searched}. What to do: {'; or '.join(ways)}"
        )


OFFICIAL: dict[str, OfficialSet] = {}
Registered = TypeVar("Registered", bound=type[OfficialSet])
REQUIRED = ("name", "line", "defaults", "classes", "folders", "marks")


def register_official(official_set: Registered) -> Registered:
    """Decorator: register a subclass of OfficialSet as the dataset of its name."""
    missing = [fact for fact in REQUIRED if not hasattr(official_set, fact)]
    missing += sorted(official_set.__abstractmethods__)
    if missing:
        raise FedmapError(
            f"official set {official_set.__name__} has no {', no '.join(missing)}; "
            f"{official_set.__module__} must hold everything about the set"
        )
    official = official_set()
    register_dataset(official.name, official.line, official.defaults)(official.load)
    OFFICIAL[official.name] = official
    return official_set
