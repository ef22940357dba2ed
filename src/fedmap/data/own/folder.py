"""Folders of image files: client/class/image, or class/image where nobody owns them yet. A top
folder named test (test/class/image) is the test set."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from fedmap.data.cache import Arrays, cached
from fedmap.data.dataset import OWN, Dataset
from fedmap.data.files import images
from fedmap.data.own.arrays import TEST, natural
from fedmap.data.registry import register_format
from fedmap.errors import FedmapError

LITTER = ("thumbs.db", "desktop.ini", "__macosx")  # what file managers leave behind
NOBODY = ""  # who owns the images of class/image
POOLED_CLIENTS = 10  # among whom such images are divided where nothing else is said
Tree = dict[str, dict[str, list[Path]]]  # client -> class -> files


@register_format(
    "folder",
    "one folder for each client, in it one folder for each class with image files; or only the "
    "folders of the classes, to be divided among clients",
)
def read_folder(path: Path, *, size: images.Size = (32, 32)) -> Dataset:
    """Read a tree of images, scaled to `size` (height, width). If any image is in color, all are;
    decoded pixels are cached."""
    tree = _tree(path)
    clients = [name for name in tree if name != TEST]
    classes = sorted({name for by_class in tree.values() for name in by_class}, key=natural)
    # for each client, and the test set, the files of each class
    rows = [[by_class.get(name, []) for name in classes] for by_class in tree.values()]
    counts = np.array([[len(of_class) for of_class in row] for row in rows])
    _check(path, tree, clients, classes, counts)
    files = [file for row in rows for of_class in row for file in of_class]
    x = torch.from_numpy(cached("folder", files, lambda: _decode(files, size), size)["x"])
    y = torch.from_numpy(np.repeat(np.tile(np.arange(len(classes)), len(rows)), counts.ravel()))
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
        **_owners(clients, sizes),
    )


def _owners(clients: list[str], sizes: npt.NDArray[Any]) -> dict[str, Any]:
    """Who the clients are, where the folders say so."""
    if clients == [NOBODY]:
        return {"defaults": replace(OWN, clients=POOLED_CLIENTS)}
    return {
        "owner": torch.from_numpy(np.repeat(np.arange(len(clients)), sizes)),
        "defaults": replace(OWN, clients=len(clients)),
        "client_names": tuple(clients),
    }


def _tree(path: Path) -> Tree:
    """All image files by client and class in the natural order of names, the test set last."""
    tops = sorted(_folders(path, "client"), key=lambda top: top.name == TEST)
    owned = [top for top in tops if top.name != TEST]
    tree: Tree = {}
    inside = [entry for top in owned for entry in _entries(top)]
    if inside and not any(entry.is_dir() for entry in inside):
        tree = {NOBODY: {label.name: _files(label) for label in owned}}
        tops = [top for top in tops if top.name == TEST]
    by_client = {top.name: {c.name: _files(c) for c in _folders(top, "class")} for top in tops}
    return tree | by_client


def _entries(path: Path) -> list[Path]:
    """What is in a folder, in natural order, without hidden files and litter."""
    try:
        entries = sorted(path.iterdir(), key=lambda entry: natural(entry.name))
    except OSError as error:
        raise FedmapError(f"{path}: this folder cannot be read ({error.strerror})") from error
    names = ((entry, entry.name.lower()) for entry in entries)
    return [entry for entry, name in names if name[0] != "." and name not in LITTER]


def _folders(path: Path, what: str) -> list[Path]:
    """The sub-folders, one for each client or class. Notes may lie beside them, images may not."""
    entries = _entries(path)
    for entry in entries:
        if entry.suffix.lower() in images.SUFFIXES and not entry.is_dir():
            raise FedmapError(
                f"{entry}: an image where a folder for each {what} should be; "
                "images lie in client/class/"
            )
    return [entry for entry in entries if entry.is_dir()]


def _files(path: Path) -> list[Path]:
    """The images of one class; anything else beside them is refused."""
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
            f"{path}: there is no client's folder here; it should hold one folder for each "
            "client, in it one folder for each class"
        )
    for client, row in zip(tree, counts, strict=True):
        if not row.sum():
            raise FedmapError(
                f"{path / client}: there is no image in this folder; "
                "it should hold one folder with images for each class"
            )
    for name, column in zip(classes, counts[: len(clients)].T, strict=True):
        if not column.sum():
            raise FedmapError(
                f"{path}: no client has an image of class {name}; "
                "remove the folders of this name or fill one"
            )


def _decode(files: list[Path], size: images.Size) -> Arrays:
    """All images; the gray ones take three equal channels if any other is in color."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        decoded = list(pool.map(lambda file: images.pixels(images.read(file), size, file), files))
    x = np.empty((len(files), max(len(image) for image in decoded), *size), np.uint8)
    for row, image in zip(x, decoded, strict=True):
        row[:] = image
    return {"x": x}
