"""Folders of image files, client/class/image; a top folder named test (test/class/image) is the
shared test set."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmap.data.cache import Arrays, cached
from fedmap.data.dataset import Dataset
from fedmap.data.files import images
from fedmap.data.own.arrays import IMAGES, TEST, natural
from fedmap.data.registry import register_format
from fedmap.errors import FedmapError

# what file managers leave behind, as they do hidden files
LITTER = ("thumbs.db", "desktop.ini", "__macosx")
Tree = dict[str, dict[str, list[Path]]]  # client -> class -> files


@register_format("folder", "one folder a client, one sub-folder a class, image files in it")
def read_folder(path: Path, *, size: images.Size = (32, 32)) -> Dataset:
    """Read a tree of images, scaled to `size` (height, width). If any image is in color, all are;
    decoded pixels are cached."""
    tree = _tree(path)
    classes = sorted({name for by_class in tree.values() for name in by_class}, key=natural)
    counts = np.array(
        [[len(by_class.get(name, ())) for name in classes] for by_class in tree.values()]
    )
    clients = [name for name in tree if name != TEST]
    _check(path, tree, clients, classes, counts)
    files = [
        file for by_class in tree.values() for name in classes for file in by_class.get(name, ())
    ]
    x = torch.from_numpy(cached("folder", files, lambda: _decode(files, size), size)["x"])
    y = torch.from_numpy(
        np.concatenate([np.repeat(np.arange(len(classes)), row) for row in counts])
    )
    sizes = counts[: len(clients)].sum(1)
    train = int(sizes.sum())  # the test set, if there is one, comes last
    return Dataset(
        name=f"folder:{path.absolute().name}",
        train_x=x[:train],
        train_y=y[:train],
        test_x=x[train:],
        test_y=y[train:],
        classes=tuple(classes),
        mean=(0.5,) * x.shape[1],
        std=(0.5,) * x.shape[1],
        owner=torch.from_numpy(np.repeat(np.arange(len(clients)), sizes)),
        defaults=replace(IMAGES, clients=len(clients)),
        client_names=tuple(clients),
    )


def _tree(path: Path) -> Tree:
    """All image files by client and class in the natural order of names, the test set last."""
    top = _folders(path, "client")
    order = [client for client in top if client.name != TEST] + [
        client for client in top if client.name == TEST
    ]
    return {
        client.name: {label.name: _files(label) for label in _folders(client, "class")}
        for client in order
    }


def _entries(path: Path) -> list[Path]:
    try:
        found = [
            entry
            for entry in path.iterdir()
            if not entry.name.startswith(".") and entry.name.lower() not in LITTER
        ]
    except OSError as error:
        raise FedmapError(f"{path}: this folder cannot be read ({error.strerror})") from error
    return sorted(found, key=lambda entry: natural(entry.name))


def _folders(path: Path, what: str) -> list[Path]:
    """The sub-folders, one for each client or class. Notes may lie beside them, images may not."""
    entries = _entries(path)
    for entry in entries:
        if entry.suffix.lower() in images.SUFFIXES and not entry.is_dir():
            raise FedmapError(
                f"{entry}: an image where a folder for each {what} should be; images lie in "
                "client/class/"
            )
    return [entry for entry in entries if entry.is_dir()]


def _files(path: Path) -> list[Path]:
    entries = _entries(path)
    for entry in entries:
        if entry.suffix.lower() not in images.SUFFIXES or entry.is_dir():
            raise FedmapError(
                f"{entry}: not an image file; a class's folder may hold "
                f"{' '.join(images.SUFFIXES)} files only"
            )
    return entries


def _check(
    path: Path, tree: Tree, clients: list[str], classes: list[str], counts: npt.NDArray[Any]
) -> None:
    if not clients:
        raise FedmapError(
            f"{path}: there is no client's folder here; it should hold one folder a client, in it "
            "one folder a class"
        )
    for client, row in zip(tree, counts, strict=True):
        if not row.sum():
            raise FedmapError(
                f"{path / client}: there is no image in this folder; it should hold one folder a "
                "class with images"
            )
    for name, column in zip(classes, counts[: len(clients)].T, strict=True):
        if not column.sum():
            raise FedmapError(
                f"{path}: no client has an image of class {name}; remove the folders of this name "
                "or fill one"
            )


def _decode(files: list[Path], size: images.Size) -> Arrays:
    """All images; the gray ones take three equal channels if any other is in color."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        decoded = list(pool.map(lambda file: images.pixels(images.read(file), size, file), files))
    x = np.empty((len(files), max(len(image) for image in decoded), *size), np.uint8)
    for row, image in zip(x, decoded, strict=True):
        row[:] = image
    return {"x": x}
