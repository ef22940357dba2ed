"""Folders of image files: client/class/image, or class/image where nobody owns them yet, or any
tree with a list clients.csv. A top folder named test (test/class/image) is the test set."""

import logging
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
from fedmap.data.own.arrays import POOLED_CLIENTS, TEST, natural
from fedmap.data.own.csv_files import read_table
from fedmap.data.registry import register_format
from fedmap.errors import FedmapError

LITTER = ("thumbs.db", "desktop.ini", "__macosx")  # what file managers leave behind
NOBODY = ""  # who owns the images of class/image
TRAIN = "train"  # below it lie the clients or classes, where there is such a folder
TESTS = (TEST, "val", "valid", "validation")  # the first of these that is there is the test set
LIST = "clients.csv"  # who has which image, where the folders do not say it
Tree = dict[str, dict[str, list[Path]]]  # client -> class -> files

log = logging.getLogger(__name__)


@register_format(
    "folder",
    "one folder for each client, in it one folder for each class with image files; or only the "
    "folders of the classes, to be divided among clients",
)
def read_folder(path: Path, *, size: images.Size = (32, 32)) -> Dataset:
    """Read a tree of images, scaled to `size` (height, width). If any image is in color, all are;
    decoded pixels are cached.

    With train/ beside test/ (or val, valid, validation) clients or classes lie below these two. A
    file clients.csv with the columns path, client and label says instead who has what."""
    tree = _listed(path) if (path / LIST).is_file() else _tree(path)
    clients = [name for name in tree if name != TEST]
    classes = sorted({name for by_class in tree.values() for name in by_class}, key=natural)
    _point_out_case(path, classes)
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
    tops, test = _split(path, _folders(path, "client"))
    inside = [entry for top in tops for entry in _entries(top)]
    if inside and not any(entry.is_dir() for entry in inside):
        tree = {NOBODY: {label.name: _files(label) for label in tops}}
    else:
        tree = {top.name: _by_class(top) for top in tops}
    return tree | ({} if test is None else {TEST: _by_class(test)})


def _by_class(top: Path) -> dict[str, list[Path]]:
    return {label.name: _files(label) for label in _folders(top, "class")}


def _split(path: Path, tops: list[Path]) -> tuple[list[Path], Path | None]:
    """The folders of clients or classes, and that of the test set: what lies in train/, if there is
    one, and a folder with one of the names of a test set."""
    by_name = {top.name.lower(): top for top in tops}
    held_out = [by_name[name] for name in TESTS if name in by_name]
    for unused in held_out[1:]:
        log.warning("%s is not used: %s is the test set", unused, held_out[0])
    others = [top for top in tops if top not in held_out]
    if TRAIN in by_name:
        beside = [top for top in others if top != by_name[TRAIN]]
        if beside:
            raise FedmapError(
                f"{beside[0]}: lies beside {by_name[TRAIN].name}, which is a split and no client; "
                f"put everything below {by_name[TRAIN].name} and {TEST}, or nothing"
            )
        others = _folders(by_name[TRAIN], "client")
    return others, held_out[0] if held_out else None


def _listed(path: Path) -> Tree:
    """The files that the list names; the client named test is the test set."""
    table = read_table(path / LIST)
    tree: Tree = {}
    columns = (table.column(name) for name in ("path", "client", "label"))
    for row, name, client, label in zip(table.rows, *columns, strict=True):
        file = path / name
        if not file.is_file():
            raise FedmapError(f"{path / LIST}: row {row} names {name}, which is not there")
        tree.setdefault(client, {}).setdefault(label, []).append(file)
    ordered = sorted(tree, key=lambda client: (client == TEST, natural(client)))
    return {client: tree[client] for client in ordered}


def _point_out_case(path: Path, classes: list[str]) -> None:
    """Say which classes might be one that was written in two ways."""
    alike: dict[str, list[str]] = {}
    for name in classes:
        alike.setdefault(name.casefold(), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            log.warning(
                "%s: classes %s differ only in case and are taken as different ones",
                path,
                " and ".join(names),
            )


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
