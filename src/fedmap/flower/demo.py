"""A federation to look at: images of fashion-mini lie at a few sites, each of which has some of the
classes only, and everything that a real federation has runs on this machine."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from fedmap.data import Dataset, load
from fedmap.errors import FedmapError
from fedmap.federation import Federation, partition
from fedmap.flower.app_folder import write_app
from fedmap.flower.lab import Lab
from fedmap.simulate.result import Result

NAMES = (
    *("oslo", "bergen", "trondheim", "stavanger", "tromso"),
    *("bodo", "drammen", "molde", "hamar", "narvik"),
)
SAMPLES = 4000  # enough to learn from, few enough to be written in seconds
Say = Callable[[str], None]


@dataclass(frozen=True)
class Site:
    """A site of the demo: a folder with its own images, and one for what never leaves it."""

    name: str
    folder: Path
    samples: int
    missing: tuple[str, ...]  # classes that it has no image of

    @property
    def data(self) -> Path:
        """Its images, in one folder for each class."""
        return self.folder / "data"

    @property
    def states(self) -> Path:
        """Its private files."""
        return self.folder / "states"


def run_demo(
    out: Path, sites: int, settings: dict[str, object], say: Say
) -> tuple[Result, list[Site]]:
    """Lay the images out, start a federation, train on it, end it. `settings` are a run's."""
    if out.exists() and any(out.iterdir()):
        raise FedmapError(f"{out} is not empty; choose a new folder for the demo")
    if not 2 <= sites <= len(NAMES):
        raise FedmapError(f"sites is {sites}; allowed: 2 to {len(NAMES)}")
    say(f"writing the images of {sites} sites")
    dataset = images()
    places = lay_out(incomplete(dataset, sites), out / "sites")
    write_images(out / "test", dataset.test_x, dataset.test_y, dataset.classes)
    server = {
        "out": str(out / "run"),
        "classes": ",".join(dataset.classes),
        "test_data": f"folder:{out / 'test'}",
        "min_sites": sites,
    }
    write_app(out / "app", settings | server)
    configs = {
        site.name: {"data": f"folder:{site.data.absolute()}", "states": str(site.states.absolute())}
        for site in places
    }
    with Lab(out / "lab", configs, say=say) as lab:
        say("training")
        lab.run_app(out / "app", on_wait=Rounds(out / "run", settings["rounds"], say))
        say("ending everything")
    return Result.read(out / "run"), places


def accuracy_by_site(result: Result) -> dict[str, float | None]:
    """The accuracy of each site's personal model after the last round."""
    sites = json.loads((result.folder / "sites.json").read_text())["sites"]
    accuracies = result.final["personal_accuracy_per_client"]
    return {site["name"]: value for site, value in zip(sites, accuracies, strict=True)}


class Rounds:
    """Tells of each new round in a run's folder when it is called."""

    def __init__(self, folder: Path, rounds: object, say: Say) -> None:
        self.folder = folder
        self.rounds = rounds  # in all
        self.say = say
        self.told = 0

    def __call__(self) -> None:
        file = self.folder / "rounds.jsonl"
        whole = file.read_bytes().count(b"\n") if file.exists() else 0
        for number in range(self.told + 1, whole + 1):
            self.say(f"round {number} of {self.rounds} is done")
        self.told = max(self.told, whole)


def images() -> Dataset:
    """Some of fashion-mini, with classes whose names can be folders."""
    some = load("fashion-mini").smaller(SAMPLES)
    return replace(some, classes=tuple(name.replace("/", "-") for name in some.classes))


def incomplete(dataset: Dataset, sites: int) -> Federation:
    """The first partition in which every site misses classes, and no two the same."""
    for seed in count():
        federation = partition(dataset, sites, seed=seed, kind="incomplete")
        held = {tuple(row) for row in federation.observed.tolist()}
        if len(held) == sites and not any(all(row) for row in held):
            return federation
    raise AssertionError("counting does not end")


def lay_out(federation: Federation, folder: Path) -> list[Site]:
    """Each client's samples as image files of a site."""
    dataset, places = federation.dataset, []
    for number, name in enumerate(NAMES[: len(federation)]):
        mine = torch.cat([federation.train[number], federation.test[number]])
        labels = dataset.train_y[mine]
        held = set(labels.tolist())
        missing = [text for c, text in enumerate(dataset.classes) if c not in held]
        site = Site(name, folder / name, len(mine), tuple(missing))
        write_images(site.data, dataset.train_x[mine], labels, dataset.classes)
        site.states.mkdir(mode=0o700)
        places.append(site)
    return places


def write_images(folder: Path, x: Tensor, y: Tensor, classes: Iterable[str]) -> None:
    """Gray images as files, in one folder for each class that there is."""
    for c, name in enumerate(classes):
        of_class = x[y == c]
        if len(of_class):
            (folder / name).mkdir(parents=True)
        for number, image in enumerate(of_class):
            Image.fromarray(image[0].numpy()).save(folder / name / f"{number:05d}.png")
