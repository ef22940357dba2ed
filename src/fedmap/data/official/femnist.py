"""femnist from LEAF's json files: handwritten characters of many writers, each writer one client.

Every sample is a training sample with its writer as owner, and the test set is empty: the
federation splits each writer's samples 80/20 and takes the union of the writers' tests as the
global one. LEAF's own split of a writer is not used.
"""

import json
import string
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmap.data.cache import Arrays, cached
from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.locate import find
from fedmap.data.official.manifest import FEMNIST_WRITERS, OFFICIAL
from fedmap.data.registry import register_dataset
from fedmap.errors import FedmapError

CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
CAP = 1 << 31  # bytes of one json file
Pair = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


def find_files(folder: Path) -> list[Path]:
    """All training files, then all test files: one writer's samples come in this order."""
    return [path for part in ("train", "test") for path in sorted((folder / part).glob("*.json"))]


def read_file(path: Path) -> dict[str, Pair]:
    """For each writer images (n, 28, 28) and labels (n,). LEAF's values are pixel / 255 with 1.0 as
    background."""
    try:
        if path.stat().st_size > CAP:
            raise FedmapError(
                f"{path}: {path.stat().st_size:,} bytes, more than the {CAP:,} that are allowed"
            )
        content = json.loads(path.read_bytes())
        users, sizes, data = content["users"], content["num_samples"], content["user_data"]
        if len(users) != len(sizes) or len(set(users)) != len(users):
            raise ValueError("`users` and `num_samples` do not fit")
        return {
            user: _writer(user, data[user], size) for user, size in zip(users, sizes, strict=True)
        }
    except FedmapError:
        raise
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise FedmapError(
            f"{path}: not a json file as LEAF writes it: {type(error).__name__} {error}"
        ) from error


def _writer(user: Any, data: Any, size: Any) -> Pair:
    x, y = np.array(data["x"], np.float64).reshape(-1, 784), np.array(data["y"])
    if not isinstance(user, str) or not len(x) == len(y) == size:
        raise ValueError(
            f"writer {user!r} has {len(x)} images and {len(y)} labels where {size} are announced"
        )
    if len(x) and not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"writer {user!r} has a pixel outside 0..1")
    if len(y) and (y.dtype.kind != "i" or y.min() < 0 or y.max() >= len(CLASSES)):
        raise ValueError(f"writer {user!r} has a label outside 0..{len(CLASSES) - 1}")
    return np.rint(x * 255).astype(np.uint8).reshape(-1, 28, 28), y.astype(np.int64)


def decode(files: list[Path]) -> Arrays:
    """Merge the files by writer, writers in the order of their names."""
    writers: dict[str, list[Pair]] = {}
    for path in files:
        for user, pair in read_file(path).items():
            writers.setdefault(user, []).append(pair)
    names = sorted(user for user, pairs in writers.items() if sum(len(y) for _, y in pairs))
    if not names:
        raise FedmapError(
            f"{files[0].parent.parent}: there is no sample of any writer in its {len(files)} json "
            "files"
        )
    pairs = [pair for user in names for pair in writers[user]]
    return {
        "x": np.concatenate([x for x, _ in pairs])[:, None],
        "y": np.concatenate([y for _, y in pairs]),
        "owner": np.repeat(
            np.arange(len(names)), [sum(len(y) for _, y in writers[user]) for user in names]
        ),
        "names": np.array(names),
    }


PAPER = Defaults(
    net="femnist", clients=FEMNIST_WRITERS, rounds=100, fraction=0.1, epochs=5, batch=10, lr=0.004
)


@register_dataset(
    "femnist", "805,263 handwritten characters of 3,550 writers, one client a writer (LEAF)", PAPER
)
def femnist(data_dir: Path | None = None) -> Dataset:
    files = find_files(find(OFFICIAL["femnist"], data_dir))
    arrays = cached("femnist", files, lambda: decode(files))
    x, y, owner = (torch.from_numpy(arrays[name]) for name in ("x", "y", "owner"))
    names = tuple(arrays["names"].tolist())
    return Dataset(
        name="femnist",
        train_x=x,
        train_y=y,
        test_x=x[:0],
        test_y=y[:0],
        classes=CLASSES,
        owner=owner,
        client_names=names,
        observed_from=2,
        defaults=replace(PAPER, clients=len(names)),
    )
