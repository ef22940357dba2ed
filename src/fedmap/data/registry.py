"""The list of datasets: for each a name, one line, the paper's settings and how it is loaded.
Nothing is read until `load`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedmap.data.dataset import OWN, Dataset, Defaults
from fedmap.errors import FedmapError
from fedmap.registry import Registry

Loader = Callable[[Path | None], Dataset]


@dataclass(frozen=True)
class Source:
    """One dataset that can be chosen by name."""

    name: str
    line: str  # what it is, for `fedmap datasets`
    load: Loader  # takes the folder in which the user keeps data, or None
    defaults: Defaults


@dataclass(frozen=True)
class Format:
    """One way to bring one's own data, chosen as NAME:PATH."""

    name: str
    line: str
    load: Callable[..., Dataset]  # (path) -> Dataset; more settings by keyword, from Python
    defaults: Defaults = OWN


DATASETS: Registry[Source] = Registry("dataset")
FORMATS: Registry[Format] = Registry("data format")
Reader = TypeVar("Reader", bound=Callable[..., Dataset])


def register_dataset(
    name: str, line: str, defaults: Defaults | None = None
) -> Callable[[Loader], Loader]:
    """Decorator: register a function (folder or None -> Dataset) as the dataset of this name."""

    def register(load: Loader) -> Loader:
        if name in DATASETS and _module(DATASETS[name].load) != _module(load):
            raise FedmapError(
                f"dataset {name!r} is registered already, by {_module(DATASETS[name].load)}; "
                "choose another name"
            )
        DATASETS.add(name)(Source(name, line, load, defaults or Defaults()))
        return load

    return register


def _module(load: Loader) -> str:
    """The module that a loader is from; a method is from the module of its object's class."""
    return str(getattr(load, "__self__", load).__module__)


def register_format(name: str, line: str, defaults: Defaults = OWN) -> Callable[[Reader], Reader]:
    """Decorator: register a function (path -> Dataset) as the reader of `name:PATH`."""

    def register(load: Reader) -> Reader:
        FORMATS.add(name)(Format(name, line, load, defaults))
        return load

    return register


def defaults_of(name: str) -> Defaults:
    """The settings to use for a dataset, or for the user's own data, before it is read."""
    if name in DATASETS:
        return DATASETS[name].defaults
    kind = name.partition(":")[0]
    return FORMATS[kind].defaults if kind in FORMATS else OWN


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """The dataset of this name (`fashion-mini`), or the user's own data as FORMAT:PATH
    (`folder:scans`, `npz:tables`)."""
    kind, colon, path = name.partition(":")
    if not colon:
        return DATASETS[name].load(data_dir)
    source = FORMATS[kind]
    if not path:
        raise FedmapError(f"dataset {name!r} has no path; write for example {kind}:my-data")
    return source.load(Path(path).expanduser())
