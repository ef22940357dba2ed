"""Compiles the C++ files once for this machine and loads them. The library uses neither Python's
nor PyTorch's headers: one compiler call of a few seconds builds it, and what is cached serves every
version of both, also where there is no compiler."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

SOURCES = tuple(Path(__file__).with_name(f"{name}.cpp") for name in ("blocks", "wide", "sparse"))
HEADERS = (Path(__file__).with_name("vectors.h"),)
FLAGS = ("-std=c++17", "-O3", "-mavx2", "-mfma", "-fno-strict-aliasing", "-shared", "-fPIC")
WIDE = ("-mavx512f",)
COMPILERS = ("c++", "g++", "clang++")


class UnavailableError(Exception):
    """Why there is no native library here, in one sentence."""


def load() -> ctypes.CDLL:
    """The native library, built if the cache does not have it or has it damaged."""
    _check_processor()
    folder = _cache()
    for path in _intact(folder):
        with suppress(OSError, AttributeError):  # for another machine, or without our functions
            return _opened(path)
    path = _compile(_compiler(), folder)
    try:
        return _opened(path)
    except OSError as wrong:
        raise UnavailableError(f"{path} cannot be loaded: {wrong}") from wrong


def _opened(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, number, whole = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
    matrix = (pointer, whole, whole)
    signatures: dict[str, tuple[list[Any], Any]] = {
        "lanes": ([], number),
        "add_product": ([*[whole] * 3, *matrix, ctypes.c_float, *matrix, pointer, whole], None),
    }
    for lanes in (8, 16)[: library.fedmap_lanes() // 8]:
        signatures |= {
            f"memory_{lanes}": ([pointer, number, whole, number], whole),
            f"forward_{lanes}": ([pointer, number, whole, *[pointer] * 5, number], number),
            f"backward_{lanes}": ([pointer, number, whole, *[pointer] * 6, number], None),
        }
    for name, (takes, gives) in signatures.items():
        function = getattr(library, f"fedmap_{name}")
        function.argtypes, function.restype = takes, gives
    return library


def _flags() -> tuple[str, ...]:
    """Not -march=native: a home folder may serve several machines. What PyTorch says of this one is
    in run.toml too, since bits depend on it."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return (*FLAGS, *WIDE) if wide else FLAGS


def _check_processor() -> None:
    if sys.platform == "win32" or platform.machine() not in ("x86_64", "amd64"):
        raise UnavailableError(
            f"they are written for Linux or macOS on x86-64, this is {sys.platform} on "
            f"{platform.machine()}"
        )
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        raise UnavailableError("the processor has no AVX2")


def _compiler() -> list[str]:
    named = os.environ.get("CXX")
    commands = [shlex.split(named)] if named else [[name] for name in COMPILERS]
    for command in commands:
        found = shutil.which(command[0])
        if found:
            return [found, *command[1:]]
    raise UnavailableError(
        f"no C++ compiler found (looked for {named or ', '.join(COMPILERS)}; the environment "
        "variable CXX can name one)"
    )


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    folder = (Path(home) if home else Path.home() / ".cache") / "fedmap" / "kernels"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise UnavailableError(
            f"the cache folder {folder} cannot be made ({wrong.strerror}; XDG_CACHE_HOME can name "
            "another)"
        ) from wrong
    return folder


def _key() -> str:
    """What a library was built from and for. Nothing here needs a compiler."""
    key = hashlib.sha256(b"".join(file.read_bytes() for file in (*SOURCES, *HEADERS)))
    facts = (_flags(), os.environ.get("CXX", ""), sys.platform, platform.machine())
    key.update(repr(facts).encode())
    return key.hexdigest()[:16]


def _name(content: bytes) -> str:
    """A library's name ends in the checksum of its content: who loads part of one crashes."""
    return f"native-{_key()}-{hashlib.sha256(content).hexdigest()[:16]}.so"


def _intact(folder: Path) -> Iterator[Path]:
    """The cached libraries of this source that are as they were written; others are removed."""
    for path in sorted(folder.glob(f"native-{_key()}-*.so")):
        with suppress(OSError):  # a folder that may not be read or written
            if path.name == _name(path.read_bytes()):
                yield path
            else:
                path.unlink()


def _compile(compiler: list[str], folder: Path) -> Path:
    """Into a file of our own, then renamed: another process sees all of it or nothing, and two that
    build at once both succeed."""
    print("fedmap: compiling the native kernels, once (some seconds)", file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            built = Path(own) / "native.so"
            run = subprocess.run(
                [*compiler, *_flags(), *map(str, SOURCES), "-o", str(built)],
                capture_output=True,
                text=True,
            )
            if run.returncode != 0:
                lines = (line for line in run.stderr.splitlines() if "error" in line)
                error = next(lines, f"exit code {run.returncode}")
                raise UnavailableError(f"{compiler[0]} cannot compile them: {error.strip()}")
            return built.replace(folder / _name(built.read_bytes()))
    except OSError as wrong:
        raise UnavailableError(f"they cannot be built in {folder}: {wrong}") from wrong
