"""From what a user calls a method to its class: a registered name, or a class in a file of the
user's own."""

import sys
import traceback
import zlib
from functools import cache
from importlib.abc import ExecutionLoader
from importlib.util import decode_source, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from fedmap.errors import FedmapError
from fedmap.methods.base import METHODS, AnyMethod, Method
from fedmap.registry import nearest

_sent: dict[Path, bytes] = {}  # files of another machine, by their paths there


def find_method(name: str) -> type[AnyMethod]:
    """The method of this name; `path/to/file.py:Class` is a class in a file."""
    file, class_name = _file_and_class(name)
    if file is None:
        return METHODS[name]
    if file not in _sent and not file.is_file():
        raise FedmapError(f"method {name}: there is no file {file}")
    module = _load(file, _content(file))
    found = getattr(module, class_name, None)
    if found is None:
        methods = [
            n
            for n, thing in vars(module).items()
            if _is_method(thing) and thing.__module__ == module.__name__
        ]
        rest = nearest(class_name, methods) if methods else "it has no subclass of fedmap.Method"
        raise FedmapError(f"method {name}: {file.name} has no class {class_name!r}; {rest}")
    if not _is_method(found):
        raise FedmapError(f"method {name}: {class_name} is not a subclass of fedmap.Method")
    return found  # type: ignore[no-any-return]


def full_name(name: str) -> str:
    """The name as a run keeps it: a file's path is absolute, so that it is found from anywhere."""
    file, class_name = _file_and_class(name)
    return name if file is None else f"{file}:{class_name}"


def file_of(name: str) -> bytes | None:
    """The content of the file that a method is in, for machines that do not have it; none where it
    is a registered method."""
    file, _ = _file_and_class(name)
    return None if file is None else _content(file)


def take_file(name: str, content: bytes | None) -> None:
    """Here, too, the method is found: its file came from another machine."""
    file, _ = _file_and_class(name)
    if file is not None and content is not None:
        _sent[file] = content


def _content(file: Path) -> bytes:
    return _sent[file] if file in _sent else file.read_bytes()


def _file_and_class(name: str) -> tuple[Path | None, str]:
    file, colon, class_name = name.rpartition(":")
    if colon and file and class_name:
        return Path(file).expanduser().resolve(), class_name
    if name.removesuffix(":").endswith(".py"):
        raise FedmapError(
            f"method {name} names a file but no class in it; give {name.removesuffix(':')}:CLASS"
        )
    return None, name


def _is_method(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, Method)


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
    if file.suffix != ".py":
        raise FedmapError(f"{file} is not a Python file; its name must end in .py")
    loader = _Loader(file, content)
    spec = spec_from_loader(name, loader)
    assert spec is not None  # this loader is always taken
    module = module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        with METHODS.restored():
            loader.exec_module(module)
    except Exception as wrong:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        line = [
            frame.lineno
            for frame in traceback.extract_tb(wrong.__traceback__)
            if frame.filename == str(file)
        ]
        where = f"line {line[-1]}: " if line else ""
        raise FedmapError(
            f"{file} fails when it is imported: {where}{type(wrong).__name__}: {wrong}"
        ) from wrong
    return module
