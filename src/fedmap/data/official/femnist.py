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

from fedmap.data.cache import Arrays
from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.files.regular import require_regular
from fedmap.data.official.base import OfficialSet, Verification, register_official
from fedmap.errors import FedmapError

CLASSES = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
WRITERS, SAMPLES = 3_550, 805_263
CAP = 1 << 31  # bytes of one json file
Pair = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@register_official
class Femnist(OfficialSet):
    """LEAF makes the files from NIST's, so there is nothing to download and no published sum."""

    name = "femnist"
    line = "805,263 handwritten characters of 3,550 writers, each writer one client (LEAF)"
    defaults = Defaults(
        net="femnist", clients=WRITERS, rounds=100, fraction=0.1, epochs=5, batch=10, lr=0.004
    )
    classes = CLASSES
    folders = ("femnist", "femnist/data", "FEMNIST", "FEMNIST/data", "leaf/data/femnist/data")
    marks = ("train/*.json",)
    advice = (
        "LEAF makes it (https://github.com/TalwalkarLab/leaf): in its data/femnist run "
        "`./preprocess.sh -s niid --sf 1.0 -k 0 -t sample`, then copy data/train and data/test "
        "into a folder named femnist"
    )

    def files(self, folder: Path) -> list[Path]:
        """All training files, then all test files: one writer's samples come in this order."""
        parts = (folder / "train", folder / "test")
        return [path for part in parts for path in sorted(part.glob("*.json"))]

    def decode(self, folder: Path) -> Arrays:
        """The files merged by writer, writers in the order of their names."""
        writers: dict[str, list[Pair]] = {}
        files = self.files(folder)
        for path in files:
            for writer, pair in read_file(path).items():
                writers.setdefault(writer, []).append(pair)
        sizes = {writer: sum(len(y) for _, y in pairs) for writer, pairs in writers.items()}
        names = sorted(writer for writer, size in sizes.items() if size)
        if not names:
            raise FedmapError(
                f"{folder}: there is no sample of any writer in its {len(files)} json files"
            )
        pairs = [pair for writer in names for pair in writers[writer]]
        return {
            "x": np.concatenate([x for x, _ in pairs])[:, None],
            "y": np.concatenate([y for _, y in pairs]),
            "owner": np.repeat(np.arange(len(names)), [sizes[writer] for writer in names]),
            "names": np.array(names),
        }

    def dataset(self, arrays: Arrays) -> Dataset:
        """All samples with their writers as owners; as many clients as there are writers."""
        x, y, owner = (torch.from_numpy(arrays[name]) for name in ("x", "y", "owner"))
        writers = tuple(arrays["names"].tolist())
        return Dataset(
            name=self.name,
            train_x=x,
            train_y=y,
            test_x=x[:0],
            test_y=y[:0],
            classes=self.classes,
            owner=owner,
            client_names=writers,
            observed_from=2,
            defaults=replace(self.defaults, clients=len(writers)),
        )

    def check(self, report: Verification) -> None:
        """Every sample is read and counted."""
        arrays = self.decode(report.folder)
        sizes = np.bincount(arrays["owner"])
        report.compare_count("writers", len(sizes), WRITERS)
        report.compare_count("samples", len(arrays["y"]), SAMPLES)
        report.facts.append(
            f"{sizes.min()} to {sizes.max()} samples for each writer, "
            f"{len(np.unique(arrays['y']))} of {len(CLASSES)} classes, "
            f"{len(self.files(report.folder))} files"
        )


def read_file(path: Path) -> dict[str, Pair]:
    """For each writer images (n, 28, 28) and labels (n,).

    LEAF's values are pixel / 255 with 1.0 as background.
    """
    require_regular(path)
    try:
        if path.stat().st_size > CAP:
            raise FedmapError(
                f"{path}: {path.stat().st_size:,} bytes, more than the {CAP:,} that are allowed"
            )
        content = json.loads(path.read_bytes())
        writers, sizes, data = content["users"], content["num_samples"], content["user_data"]
        if len(writers) != len(sizes) or len(set(writers)) != len(writers):
            raise ValueError("`users` and `num_samples` do not fit")
        return {
            writer: _samples(writer, data[writer], size)
            for writer, size in zip(writers, sizes, strict=True)
        }
    except FedmapError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise FedmapError(
            f"{path}: not a json file as LEAF writes it: {type(error).__name__} {error}"
        ) from error


def _samples(writer: Any, data: Any, size: Any) -> Pair:
    x, y = np.array(data["x"], np.float64).reshape(-1, 784), np.array(data["y"])
    if not isinstance(writer, str) or not len(x) == len(y) == size:
        raise ValueError(
            f"writer {writer!r} has {len(x)} images and {len(y)} labels where {size} are announced"
        )
    if len(x) and not ((x >= 0) & (x <= 1)).all():
        raise ValueError(f"writer {writer!r} has a pixel outside 0..1")
    if len(y) and (y.dtype.kind != "i" or y.min() < 0 or y.max() >= len(CLASSES)):
        raise ValueError(f"writer {writer!r} has a label outside 0..{len(CLASSES) - 1}")
    return np.rint(x * 255).astype(np.uint8).reshape(-1, 28, 28), y.astype(np.int64)
