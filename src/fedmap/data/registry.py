"""The list of datasets: for each a name, one line, the paper's settings and how it is loaded.
Nothing is read until `load`."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from fedmap import own_code
from fedmap.data.dataset import OWN, Dataset, Defaults, Scale
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
    """Decorator: register a function (path -> Dataset) as the reader of `name:PATH`. Its keyword
    arguments are options that settings can give. What it reads knows the settings that lead back to
    it; a size may be one number."""

    def register(load: Reader) -> Reader:
        parameters = [*inspect.signature(load).parameters.values()][1:]
        usual = {one.name: one.default for one in parameters}

        @wraps(load)
        def read(path: Path, **options: Any) -> Dataset:
            size = options.get("size")
            square = {"size": (size, size)} if isinstance(size, int) else {}
            dataset = load(path, **options | square)
            used = {"data": f"{name}:{path.absolute()}"} | usual | options
            if len(dataset.shape) == 1:
                used |= {"size": None, "scale": dataset.scale}
            elif "size" in usual:
                height, width = dataset.shape[1:]
                used["size"] = height if height == width else (height, width)
            origin = {
                option: tuple(value) if isinstance(value, list) else value
                for option, value in used.items()
                if value is not None
            }
            return replace(dataset, origin=origin)

        FORMATS.add(name)(Format(name, line, read, defaults))
        return cast(Reader, read)

    return register


def defaults_of(name: str) -> Defaults:
    """The settings to use for a dataset, or for the user's own data, before it is read."""
    if name in DATASETS:
        return DATASETS[name].defaults
    kind = name.partition(":")[0]
    return FORMATS[kind].defaults if kind in FORMATS else OWN


def full_data_name(name: str) -> str:
    """The same data, whatever the current folder: own data with its whole path."""
    kind, colon, path = name.partition(":")
    whole = colon and path and kind in FORMATS
    return f"{kind}:{_expanded(path).absolute()}" if whole else own_code.full_name(name)


def format_of(name: str) -> str:
    """The format that a plain path seems to be of; empty where it is none."""
    path = _expanded(name)
    suffix = path.suffix.lower().removeprefix(".")
    return suffix if suffix in FORMATS else "folder" if name and path.is_dir() else ""


def is_own_code(name: str) -> bool:
    """Is it meant as FILE.py:NAME, and not as the path of a format?"""
    named = own_code.is_code(name) or name.removesuffix(":").endswith(".py")
    return named and name.partition(":")[0] not in FORMATS


def call_own(name: str) -> Any:
    """What the function NAME of FILE.py:NAME gives: a Dataset that knows where it is from, or
    anything else as it is."""
    what = "function without arguments that gives a fedmap Dataset or Federation"
    read = own_code.find("data", name, callable, what)
    try:
        found = read()
    except FedmapError:
        raise
    except Exception as wrong:
        raise own_code.failed(f"data {name} fails when it is called", wrong) from wrong
    if not isinstance(found, Dataset):
        return found
    origin = {"data": own_code.full_name(name)}
    return replace(found, name=f"{Path(name).name}", origin=origin)


def _expanded(path: str) -> Path:
    """With the home folder for a tilde; one of a user that is not known stays as it is."""
    return Path(os.path.expanduser(path))


def load(name: str, data_dir: Path | None = None, **options: Any) -> Dataset:
    """The dataset of this name (`fashion-mini`), or the user's own data as FORMAT:PATH
    (`folder:scans`, `npz:tables`) with the options of its reader, or FILE.py:NAME, a function
    without arguments that gives a Dataset.

    `scale` is an option of every format: "standard" (every feature of vectors gets mean 0 and
    deviation 1 in a federation) or "none"."""
    found = load_any(name, data_dir, **options)
    if not isinstance(found, Dataset):
        raise FedmapError(
            f"data {name} gives a {type(found).__name__}; a fedmap Dataset is needed here, as "
            "fedmap.data.from_clients makes it"
        )
    return found


def load_any(name: str, data_dir: Path | None = None, **options: Any) -> Any:
    """The same; what code in a file of the user's own gives may be something else than a
    Dataset."""
    kind, colon, path = name.partition(":")
    if not colon or is_own_code(name):
        if options:
            raise FedmapError(
                f"dataset {name} takes no {spoken(min(options))}; that is for own data, as "
                f"{format_of(name) or 'FORMAT'}:{name if format_of(name) else 'PATH'}"
            )
        if is_own_code(name):
            return call_own(name)
        if name not in DATASETS and (format := format_of(name)):
            raise FedmapError(f"{name} is a path without its format; write {format}:{name}")
        return DATASETS[name].load(data_dir)
    source = FORMATS[kind]
    if not path:
        raise FedmapError(f"dataset {name!r} has no path; write for example {kind}:my-data")
    scale = options.pop("scale", None)
    known = [*inspect.signature(source.load).parameters][1:]  # the first is the path
    for option in options:
        if option not in known:
            there = ", ".join(spoken(name) for name in [*known, "scale"])
            raise FedmapError(f"data format {kind} takes no {spoken(option)}; it takes {there}")
    dataset = source.load(_expanded(path), **options)
    if scale is None:
        return dataset
    if scale not in get_args(Scale):
        raise FedmapError(f"scale is {scale!r}; allowed: {' or '.join(get_args(Scale))}")
    if dataset.train_x.dim() != 2:
        raise FedmapError(f"dataset {name} has images; scale is for vectors")
    return replace(dataset, scale=scale, origin=dataset.origin | {"scale": scale})


def spoken(option: str) -> str:
    """An option of a reader, as it is called on the command line and, where that differs, in
    Python."""
    flag = "--label" if option == "label_column" else f"--{option.replace('_', '-')}"
    return flag if flag == f"--{option}" else f"{flag} ({option} in Python)"
