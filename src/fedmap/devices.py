"""Where the models of a run live: the names of devices, what this machine has of them, and what
makes them give the same bits each time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedmap.errors import FedmapError

KINDS = ("cuda", "mps")  # beside the CPU; `auto` takes the first that is there
FUSED = ("cpu", *KINDS)  # where torch has optimizers that are one pass over a vector


def count(kind: str) -> int:
    """How many devices of a kind this machine has."""
    if kind == "cuda":
        return torch.cuda.device_count() if torch.cuda.is_available() else 0
    return int(kind == "mps" and torch.backends.mps.is_available())


def chosen(name: str | None) -> str | None:
    """What a setting means: `auto` is the best that is there, and none is the CPU."""
    if name == "auto":
        return next((kind for kind in KINDS if count(kind)), None)
    return None if name == "cpu" else name


def require(name: str | None) -> None:
    """Refuse a device that is not there."""
    there = [f"cuda:{n}" for n in range(count("cuda"))] + ["mps"] * count("mps")
    kinds = {device.partition(":")[0] for device in there}
    if name is not None and name not in (*there, *kinds):
        raise FedmapError(
            f"device is {name!r}, but this machine has {', '.join(['cpu', *there])}; choose one of "
            "these, or auto"
        )


def kind(name: str | None) -> str | None:
    """Which bits come out depends on the kind of a device, not on its number."""
    return None if name is None else name.partition(":")[0]


def place(name: str | None, worker: int = 0) -> str | None:
    """The device of one worker: all devices of the kind in turn, unless one of them is named."""
    return f"cuda:{worker % max(count('cuda'), 1)}" if name == "cuda" else name


@contextmanager
def in_force(device: torch.device) -> Iterator[None]:
    """What a process must be like for the same bits each time; on the CPU there is nothing to do.
    Torch warns where an operation has no form that always gives the same."""
    if device.type not in KINDS:
        yield
        return
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read at CUDA's start
        torch.cuda.set_device(device)
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
