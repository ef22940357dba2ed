"""Code in a file of the user's own, named FILE.py:NAME: methods, nets, datasets and partitions. It
is run only where the user names the file, never because a run's folder or a model does."""

import hashlib
import inspect
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.abc import ExecutionLoader
from importlib.util import decode_source, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

from fedmap.errors import FedmapError
from fedmap.random import seeded_torch
from fedmap.registry import all_restored, nearest

KINDS = ("method", "net", "data", "partition")  # the settings that may name code
PYTHON = "python:"  # before what stands for a thing that was given in Python
_sent: dict[Path, bytes] = {}  # files of another machine, by their paths there


def is_code(name: object) -> bool:
    """Is it FILE.py:NAME? Nothing else is ever run."""
    file, _, inside = str(name).rpartition(":")
    return isinstance(name, str) and file.endswith(".py") and bool(inside)


def full_name(name: str) -> str:
    """The name as a run keeps it: a file's path is absolute, so that it is found from anywhere."""
    return f"{_file(name)}:{name.rpartition(':')[2]}" if is_code(name) else name


def short_name(name: str) -> str:
    """The name without its file, for tables and folders."""
    return name.rpartition(":")[2] if is_code(name) or name.startswith(PYTHON) else name


def find(kind: str, name: str, fits: Callable[[Any], bool], what: str) -> Any:
    """The thing called NAME in the file of FILE.py:NAME. What does not fit is refused; `what` says
    what would."""
    refuse_mark(kind, name)
    file = _file(_complete(kind, name))
    if file not in _sent and not file.is_file():
        raise FedmapError(f"{kind} {name}: there is no file {file}")
    module, inside = _load(file, _content(file)), name.rpartition(":")[2]
    if not hasattr(module, inside):
        own = [n for n, thing in vars(module).items() if _is_from(module, thing) and fits(thing)]
        rest = nearest(inside, own) if own else f"it has no {what}"
        raise FedmapError(f"{kind} {name}: {file.name} has no {inside!r}; {rest}")
    found = getattr(module, inside)
    if not fits(found):
        raise FedmapError(f"{kind} {name}: {inside} is no {what}")
    return found


def refuse_mark(kind: str, name: str) -> None:
    """What stands for a thing that was given in Python does not lead back to it."""
    if name.startswith(PYTHON):
        raise FedmapError(
            f"{kind} {short_name(name)} was given in Python, not as FILE.py:NAME; give it again "
            f"there: fedmap.run(..., resume=True), Result.read(..., {kind}=...)"
        )


def mark(thing: Any, content: bytes = b"") -> str:
    """What stands in run.toml for a thing that was given in Python: its name, and a checksum of its
    source, if it can be had, and of its content."""
    made = thing if hasattr(thing, "__name__") else type(thing)
    try:
        source = inspect.getsource(made).encode()
    except (OSError, TypeError):
        source = b""
    return f"{PYTHON}{hashlib.sha256(source + content).hexdigest()[:8]}:{made.__name__}"


def require_named(
    where: Path, kept: Mapping[str, Any], named: Iterable[Any] = (), trust: bool = False
) -> None:
    """Refuse code that a file or folder names, and the user does not. `kept` are its settings,
    `named` what the user gave."""
    trusted = {_file(name) for name in named if is_code(name)}
    for kind in KINDS:
        name = kept.get(kind)
        if is_code(name) and not trust and _file(str(name)) not in trusted:
            raise FedmapError(
                f"{where} names {kind} {full_name(str(name))}, a file that is no part of fedmap or "
                f"of an installed package; it is not run, because you did not name it: look into "
                f"it, then say --trust, or give it with --{kind} FILE.py:NAME where the command "
                f"takes that (in Python trust=True or {kind}=...)"
            )


def checksums(settings: Mapping[str, Any]) -> dict[str, str]:
    """Of every file of code that some settings name."""
    return {
        kind: hashlib.sha256(_content(_file(settings[kind]))).hexdigest()[:16]
        for kind in KINDS
        if is_code(settings.get(kind)) and _there(_file(settings[kind]))
    }


def changed(kept: Mapping[str, str], settings: Mapping[str, Any]) -> str:
    """Which code is not what it was when `checksums` gave these; nothing where all is."""
    now = checksums(settings)
    for kind, before in kept.items():
        if kind in now and now[kind] != before:
            return f"the file of {kind} {settings[kind]} changed ({before} then, {now[kind]} now)"
    return ""


def code_files(*names: str | None) -> dict[Path, bytes]:
    """The files that some names are in, for machines that do not have them."""
    return {_file(name): _content(_file(name)) for name in names if name and is_code(name)}


def take_files(files: Mapping[Path, bytes]) -> None:
    """Here, too, the names are found: their files came from another machine."""
    _sent.update(files)


def _file(name: str) -> Path:
    return Path(os.path.expanduser(name.rpartition(":")[0])).resolve()


def _there(file: Path) -> bool:
    return file in _sent or file.is_file()


def _content(file: Path) -> bytes:
    return _sent[file] if file in _sent else file.read_bytes()


def _complete(kind: str, name: str) -> str:
    """The name, if it is FILE.py:NAME."""
    if name.removesuffix(":").endswith(".py"):
        file = name.removesuffix(":")
        raise FedmapError(f"{kind} {name} names a file but nothing in it; give {file}:NAME")
    if not is_code(name):
        file = name.rpartition(":")[0]
        raise FedmapError(f"{kind} {name}: {file} is not a Python file; its name must end in .py")
    return name


def _is_from(module: ModuleType, thing: Any) -> bool:
    return getattr(thing, "__module__", None) == module.__name__


class _Loader(ExecutionLoader):
    """Runs a file's content, whether or not this machine has the file."""

    def __init__(self, file: Path, content: bytes) -> None:
        self._file = str(file)
        self._content = content

    def get_filename(self, fullname: str) -> str:
        return self._file

    def get_source(self, fullname: str) -> str:
        return decode_source(self._content)


@cache
def _load(file: Path, content: bytes) -> ModuleType:
    """Run the file as a module, once for each of its versions. What it registers is not kept: the
    path is its name, and two files may well have classes of the same name."""
    name = f"fedmap_own_{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    loader = _Loader(file, content)
    spec = spec_from_loader(name, loader)
    assert spec is not None  # this loader is always taken
    module = module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        # What it draws while it is run is the same in every process.
        with all_restored(), seeded_torch(0, "own code"):
            loader.exec_module(module)
    except Exception as wrong:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        raise failed(f"{file} fails when it is imported", wrong, str(file)) from wrong
    return module


def failed(what: str, wrong: Exception, file: str = "") -> FedmapError:
    """The sentence for the user's own code that raised something, with the line where it is of a
    file."""
    frames = traceback.extract_tb(wrong.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    where = f"line {lines[-1]}: " if lines else ""
    return FedmapError(f"{what}: {where}{type(wrong).__name__}: {wrong}")
