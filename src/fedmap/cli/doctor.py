"""`fedmap doctor`: what this machine has for fedmap, and what it lacks."""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import torch

from fedmap import kernels
from fedmap.cli.parsing import cores
from fedmap.data.locate import cache_dir
from fedmap.data.verify import listed

NAMED = re.compile(r"([\w.-]+).*?(?:extra == ['\"]([\w-]+)['\"])?$")


def findings() -> Iterator[tuple[str, str]]:
    """What was found, each with its name."""
    yield "fedmap", installed("fedmap") or ""
    yield "python", f"{platform.python_version()} on {platform.system()} ({platform.machine()})"
    yield "torch, numpy", f"{torch.__version__}, {installed('numpy')}"
    yield "cores", f"{cores()} of {os.cpu_count()} for this process{memory()}"
    yield "devices", ", ".join(devices())
    native = kernels.available()
    yield "native kernels", "yes" if native else f"no, PyTorch's are used: {kernels.why_not()}"
    yield "data", "; ".join(data())
    for name, missing in extras().items():
        lacks = f"no, get it with: pip install 'fedmap[{name}]' (lacks {', '.join(missing)})"
        yield f"extra {name}", lacks if missing else "yes"
    for what, folder in (("here", Path.cwd()), ("cache", cache_dir())):
        yield f"disk, {what}", room(folder)


def installed(package: str) -> str | None:
    """A package's version; None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def memory() -> str:
    """How much memory the machine has, where the system tells."""
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return ""
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f", {size / 1e9:.0f} GB of memory"


def devices() -> list[str]:
    """What torch can compute on."""
    found = ["cpu"]
    for k in range(torch.cuda.device_count()):
        found.append(f"cuda:{k} ({torch.cuda.get_device_name(k)})")
    return found + ["mps"] * torch.backends.mps.is_available()


def data() -> list[str]:
    """Where each dataset is; the others together."""
    rows = listed()
    found = [f"{row.name} ({row.place})" for row in rows if row.place]
    lacking = [row.name for row in rows if not row.place]
    return found + [f"not there: {', '.join(lacking)}"] * bool(lacking)


def extras() -> dict[str, list[str]]:
    """For each extra of fedmap, the packages that are not installed."""
    missing: dict[str, list[str]] = {}
    for line in requires("fedmap") or []:
        package, extra = NAMED.fullmatch(line).groups()  # type: ignore[union-attr]
        if extra and extra != "dev":
            lacking = missing.setdefault(extra, [])
            lacking += [] if installed(package) else [package]
    return missing


def room(folder: Path) -> str:
    """How much can be written into a folder."""
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    writable = "" if os.access(existing, os.W_OK) else ", which cannot be written"
    return f"{shutil.disk_usage(existing).free / 1e9:.0f} GB free in {folder}{writable}"
