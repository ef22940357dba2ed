"""Compiles the C++ files once for this machine and loads it. The library uses neither Python's nor
PyTorch's headers: one compiler call of a few seconds makes it, and what is cached serves every
version of both."""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

SOURCES = tuple(Path(__file__).with_name(name) for name in ("blocks.cpp", "sparse.cpp"))
FLAGS = ("-std=c++17", "-O3", "-mavx2", "-mfma", "-fno-strict-aliasing", "-shared", "-fPIC")
"""Not -march=native: a home folder may serve several machines."""
COMPILERS = ("c++", "g++", "clang++")


class UnavailableError(Exception):
    """Why there is no native library here, in one sentence."""


def load() -> ctypes.CDLL:
    """The native library, built if the cache does not have it."""
    _check_processor()
    compiler = _compiler()
    path = _cache() / f"native-{_key(compiler)}.so"
    if not path.exists():
        _compile(compiler, path)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as wrong:
        raise UnavailableError(f"{path} cannot be loaded: {wrong}") from wrong
    pointer, number, whole = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
    library.fedmap_memory.argtypes = [pointer, number, whole, number]
    library.fedmap_memory.restype = whole
    library.fedmap_forward.argtypes = [pointer, number, whole, *[pointer] * 5, number]
    library.fedmap_forward.restype = None
    library.fedmap_backward.argtypes = [pointer, number, whole, *[pointer] * 6, number]
    library.fedmap_backward.restype = None
    left = right = (pointer, whole, whole)
    library.fedmap_add_product.argtypes = [
        whole,
        whole,
        whole,
        *left,
        ctypes.c_float,
        *right,
        pointer,
        whole,
    ]
    library.fedmap_add_product.restype = None
    return library


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


def _key(compiler: list[str]) -> str:
    binary = Path(compiler[0]).resolve()
    stamp = binary.stat()
    key = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES))
    key.update(repr((FLAGS, compiler, str(binary), stamp.st_size, stamp.st_mtime_ns)).encode())
    return key.hexdigest()[:16]


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


def _compile(compiler: list[str], path: Path) -> None:
    """Into a file of our own, then renamed: another process sees all of it or nothing, and two that
    build at once both succeed."""
    print("fedmap: compiling the native kernels, once (some seconds)", file=sys.stderr)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            run = subprocess.run(
                [*compiler, *FLAGS, *map(str, SOURCES), "-o", str(made)],
                capture_output=True,
                text=True,
            )
            if run.returncode != 0:
                error = next(
                    (line for line in run.stderr.splitlines() if "error" in line),
                    f"exit code {run.returncode}",
                )
                raise UnavailableError(f"{compiler[0]} cannot compile them: {error.strip()}")
            made.replace(path)
    except OSError as wrong:
        raise UnavailableError(f"they cannot be built in {path.parent}: {wrong}") from wrong
