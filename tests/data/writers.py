"""Small files in the official formats, for the tests."""

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from fedmap.data.files import idx
from fedmap.data.official.cifar_10 import Cifar10
from fedmap.data.official.cifar_100 import Cifar100
from fedmap.data.official.cinic_10 import Cinic10
from fedmap.data.official.families.cifar import Cifar

RNG = np.random.default_rng(0)
CIFAR: dict[str, Cifar] = {"cifar-10": Cifar10(), "cifar-100": Cifar100()}
CIFAR_FOLDERS = {
    ("cifar-10", "bin"): "cifar-10-batches-bin",
    ("cifar-10", "py"): "cifar-10-batches-py",
    ("cifar-100", "bin"): "cifar-100-binary",
    ("cifar-100", "py"): "cifar-100-python",
}


def write_mnist(
    folder: Path,
    train: int = 30,
    test: int = 20,
    pack: Callable[[bytes], bytes] = bytes,
    end: str = "",
    mark: str = "-",
) -> None:
    """The four files; `pack` compresses them."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for part, n in (("train", train), ("t10k", test)):
        images = rng.integers(256, size=(n, 28, 28), dtype=np.uint8)
        labels = (np.arange(n) % 10).astype(np.uint8)
        (folder / f"{part}-images{mark}idx3-ubyte{end}").write_bytes(pack(idx.encode(images)))
        (folder / f"{part}-labels{mark}idx1-ubyte{end}").write_bytes(pack(idx.encode(labels)))


def write_cifar(
    root: Path, name: str, version: str, n: int = 4
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A small set in official format; returns what is in it."""
    official = CIFAR[name]
    folder = root / CIFAR_FOLDERS[name, version]
    folder.mkdir(parents=True)
    content = {}
    for stem in (*official.train_files, official.test_file):
        x = RNG.integers(256, size=(n, 3072), dtype=np.uint8)
        y = RNG.integers(len(official.classes), size=n, dtype=np.uint8)
        content[stem] = x, y
        if version == "bin":
            coarse = [y[:, None] // 5] * (official.label_bytes - 1)
            records = np.concatenate([*coarse, y[:, None], x], 1)
            (folder / f"{stem}.bin").write_bytes(records.tobytes())
        else:
            labels = {"labels": y.tolist()}
            if name == "cifar-100":
                labels = {"coarse_labels": [0] * n, "fine_labels": y.tolist()}
            (folder / stem).write_bytes(pickle.dumps({"data": x, **labels}, 4))
    return content


def write_cinic(root: Path, n: int = 2) -> dict[str, np.ndarray]:
    """A small tree; returns the pixels of the first training image of each class."""
    first = {}
    for part in ("train", "test", "valid"):
        for name in Cinic10.classes:
            folder = root / "CINIC-10" / part / name
            folder.mkdir(parents=True)
            for i in reversed(range(n)):
                pixels = RNG.integers(256, size=(32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
                if part == "train":
                    first[name] = pixels
    return first


def leaf_image(value: int) -> list[float]:
    """A white image, but for its first pixel."""
    return [value / 255] + [1.0] * 783


def leaf_shard(writers: dict[str, list[tuple[int, int]]]) -> dict:
    """A json file as LEAF writes it, from (first pixel, label) of each sample."""
    data = {
        user: {"x": [leaf_image(v) for v, _ in samples], "y": [label for _, label in samples]}
        for user, samples in writers.items()
    }
    return {
        "users": list(writers),
        "num_samples": [len(samples) for samples in writers.values()],
        "user_data": data,
    }


def write_leaf(folder: Path, part: str, name: str, content: object) -> Path:
    """One json file of a part."""
    path = folder / part / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def write_femnist(root: Path) -> None:
    """Three writers in three files."""
    folder = root / "femnist"
    write_leaf(folder, "train", "b.json", leaf_shard({"f9": [(1, 0), (2, 61)]}))
    write_leaf(folder, "train", "a.json", leaf_shard({"f2": [(3, 10)], "f1": [(4, 3)]}))
    write_leaf(folder, "test", "a.json", leaf_shard({"f2": [(5, 11)], "f9": [(6, 0)]}))


def text(value: bytes) -> bytes:
    """The pickle of a short or long text of Python 2."""
    if len(value) < 256:
        return b"U" + bytes((len(value),)) + value
    return b"T" + struct.pack("<I", len(value)) + value


def number(value: int) -> bytes:
    """The pickle of a whole number."""
    return b"J" + struct.pack("<i", value)


def python2(x: np.ndarray, labels: list[int], key: bytes = b"labels") -> bytes:
    """What cPickle of Python 2 wrote: bytes as text, numpy under its old module name."""
    name = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    array = name + b"K\x00\x85" + text(b"b") + b"\x87R"
    order = b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + number(-1) + number(-1) + b"K\x00tb"
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + order
    shape = number(x.shape[0]) + number(x.shape[1]) + b"\x86"
    state = b"(K\x01" + shape + dtype + b"\x89" + text(x.tobytes()) + b"tb"
    pairs = text(b"data") + array + state + text(key) + b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + pairs + text(b"batch_label") + text(b"training batch 1 of 5") + b"u."
