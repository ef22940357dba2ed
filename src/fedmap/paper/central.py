"""Training in one place as the work of a study: plain SGD of one net on the first classes of a
dataset, and what any work in steps needs to be stopped and to go on to the same bits."""

import hashlib
import json
import math
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedmap import kernels, values
from fedmap.data import Dataset, load
from fedmap.data.augment import augment
from fedmap.errors import FedmapError
from fedmap.experiment.work import OnStep
from fedmap.losses import cross_entropy
from fedmap.nets import build
from fedmap.paper.study import Row, from_csv, to_csv
from fedmap.random import generator
from fedmap.simulate.folder import RunFolder
from fedmap.values import Values
from fedmap.vector import SGD, Model

CHECKPOINT = "checkpoint/step.safetensors"


class Step(NamedTuple):
    """What one step leaves."""

    values: Values  # all that the next step needs
    rows: list[Row]  # what was measured
    message: str  # for the person who waits


@dataclass(frozen=True, kw_only=True)
class Stepwise:
    """Work whose steps depend on nothing but what the step before left. A subclass says `steps`,
    `begin` and `step`."""

    data: str
    net: str
    lr: float
    seed: int
    batch: int = 64
    # of the whole training set, the same share of each class; the test set stays whole
    samples: int | None = None
    # Sums depend on how many threads share them, so the number belongs to the work, whatever
    # `--workers` says: two for networks that are large enough to gain from it.
    threads: int = 1
    data_dir: str | None = None

    @property
    def name(self) -> str:
        settings = asdict(self) | {"kernels": kernels.resolve("auto")}
        del settings["data_dir"]
        kind = type(self).__name__.lower()
        content = json.dumps([kind, settings], sort_keys=True).encode()
        digest = hashlib.sha256(content).hexdigest()[:8]
        return f"{kind}-{self.data}-{self.net}-seed{self.seed}-{digest}"

    @property
    def steps(self) -> int:
        raise NotImplementedError

    def begin(self) -> Values:
        """What the first step needs."""
        raise NotImplementedError

    def step(self, number: int, left: Values) -> Step:
        """One step, from 1 on."""
        raise NotImplementedError

    def done(self, root: Path) -> bool:
        return RunFolder(root / self.name).done

    def go(self, root: Path, on_step: OnStep) -> None:
        """All steps that are left, with a checkpoint after each."""
        folder = RunFolder(root / self.name)
        with folder.locked(), with_threads(self.threads), kernels.in_force("auto"):
            if folder.done:
                return
            number, left, rows = self._kept(folder.path / CHECKPOINT)
            while number < self.steps:
                number += 1
                left, new, message = self.step(number, left)
                rows += new
                folder.write(CHECKPOINT, values.save(left, noted(number, rows, left)))
                on_step(number, message)
            folder.write("measured.csv", to_csv(rows))
            folder.finish()

    def _kept(self, path: Path) -> tuple[int, Values, list[Row]]:
        """The number of steps done, what the last one left, and what was measured."""
        if not path.exists():
            return 0, self.begin(), []
        try:
            left, notes = values.load(path), values.load_notes(path)
            number, rows = int(notes["number"]), json.loads(notes["rows"])
        except (FedmapError, KeyError, ValueError):
            left, notes, number, rows = {}, {}, 0, []
        if notes != noted(number, rows, left):
            raise FedmapError(
                f"{path} is damaged: its checksum differs; remove it to begin this work again"
            )
        return number, left, rows

    def measured(self, root: Path) -> list[Row]:
        return from_csv(RunFolder(root / self.name).intact("measured.csv"))

    @cached_property
    def dataset(self) -> Dataset:
        return _dataset(self.data, self.data_dir, self.samples)

    def fresh(self) -> Model:
        """The net as it is initialized, with an output for every class of the dataset."""
        return Model(build(self.net, self.dataset.shape, len(self.dataset.classes), self.seed))

    def seconds_a_batch(self) -> float:
        """Of training, measured once for each dataset, net and batch size."""
        with with_threads(self.threads), kernels.in_force("auto"):
            return _seconds_a_batch(self.data, self.data_dir, self.net, self.batch)


@dataclass(frozen=True, kw_only=True)
class Central(Stepwise):
    """SGD of one net on the training samples of the first `classes` classes; a step is an epoch."""

    classes: int
    epochs: int
    momentum: float = 0.9
    # the paper gives none here; this is the one of its federated runs, as is the batch size
    weight_decay: float = 1e-5

    @property
    def label(self) -> str:
        return f"{self.net} on the first {self.classes} classes of {self.data} #{self.seed}"

    @property
    def steps(self) -> int:
        return self.epochs

    def measure(self, epoch: int, model: Model, gradient: Tensor) -> list[Row]:
        """Numbers of the model after an epoch (0: before the first) and of its classifier's
        gradient, summed over the epoch."""
        return []

    @cached_property
    def train_data(self) -> tuple[Tensor, Tensor]:
        chosen = self.dataset.train_y < self.classes
        return self.dataset.train_x[chosen], self.dataset.train_y[chosen]

    def test_data(self) -> tuple[Tensor, Tensor]:
        """Of the classes that are trained on."""
        chosen = self.dataset.test_y < self.classes
        return self.dataset.normalize(self.dataset.test_x[chosen]), self.dataset.test_y[chosen]

    def batches(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All samples in a new order; the last, short batch is kept."""
        (x, y), dataset, rng = self.train_data, self.dataset, generator(self.seed, "central", epoch)
        for index in torch.split(torch.from_numpy(rng.permutation(len(y))), self.batch):
            samples = dataset.normalize(x[index])
            yield (augment(samples, rng, dataset.black) if dataset.augment else samples), y[index]

    def begin(self) -> Values:
        return {"model": self.fresh().vector}

    def step(self, number: int, left: Values) -> Step:
        model = self.fresh().load(left["model"])
        optimizer = ResumableSGD([model.weights], self.lr, self.momentum, self.weight_decay)
        optimizer.momentum = left.get("momentum")
        gradient = torch.zeros_like(model.grads[model.classifier_part])
        rows = self.measure(0, model, gradient) if number == 1 else []
        losses = []
        model.net.train()
        for x, y in self.batches(number):
            losses.append(gradient_step(model, optimizer, x, y))
            gradient += model.grads[model.classifier_part]
        model.net.eval()
        loss = sum(losses) / len(losses)
        if not math.isfinite(loss):
            raise FedmapError(
                f"the training loss of {self.label} is {loss} in epoch {number} (lr {self.lr:g}); "
                "a smaller lr usually helps"
            )
        rows += self.measure(number, model, gradient)
        kept = {"model": model.vector}
        if optimizer.momentum is not None:
            kept["momentum"] = optimizer.momentum
        return Step(kept, rows, f"loss {loss:.3f}")

    def seconds_at_end(self) -> float:
        """Nothing comes after the last step."""
        return 0.0

    def seconds_a_step(self) -> float:
        return -(-len(self.train_data[1]) // self.batch) * self.seconds_a_batch()


def noted(number: int, rows: list[Row], left: Values) -> dict[str, str]:
    """What the header of a checkpoint says: the step, what was measured, a checksum of it all."""
    measured = json.dumps(rows)
    crc = values.checksum(left, zlib.crc32(f"{number} {measured}".encode()))
    return {"number": str(number), "rows": measured, "checksum": str(crc)}


class ResumableSGD(SGD):
    """SGD on one vector whose momentum can be kept and put back."""

    @property
    def momentum(self) -> Tensor | None:
        return self._momenta[0]

    @momentum.setter
    def momentum(self, value: Tensor | None) -> None:
        self._momenta[0] = value


def gradient_step(model: Model, optimizer: SGD, x: Tensor, y: Tensor) -> float:
    """One step of SGD on one batch; its loss."""
    model.grads.zero_()
    loss = cross_entropy(model, x, y)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return loss.item()


@lru_cache(maxsize=2)
def _dataset(data: str, data_dir: str | None, samples: int | None) -> Dataset:
    whole = load(data, Path(data_dir) if data_dir else None)
    fewer = whole.smaller(samples) if samples else whole
    return replace(whole, train_x=fewer.train_x, train_y=fewer.train_y)


@lru_cache
def _seconds_a_batch(data: str, data_dir: str | None, net: str, batch: int) -> float:
    dataset = _dataset(data, data_dir, None)
    model = Model(build(net, dataset.shape, len(dataset.classes), 0))
    model.net.train()
    optimizer = SGD([model.weights], lr=0.01, momentum=0.9)
    x, y = dataset.normalize(dataset.train_x[:batch]), dataset.train_y[:batch]
    gradient_step(model, optimizer, x, y)  # the first one is slower
    began = time.perf_counter()
    for _ in range(3):
        gradient_step(model, optimizer, x, y)
    return (time.perf_counter() - began) / 3


@contextmanager
def with_threads(number: int) -> Iterator[None]:
    """Inside, torch has this many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def shown_cuts(size: dict[str, Any], epochs: int, paper_net: str | None = None) -> list[str]:
    """In words, what of a scale's settings is less than all images of the paper's data for its
    number of epochs."""
    cuts = []
    if size["data"] == "fashion-mini":
        cuts.append("fashion-mini instead of the paper's data")
    if paper_net and size["net"] != paper_net:
        cuts.append(f"{size['net']} instead of {paper_net}")
    if "samples" in size:
        cuts.append(f"{size['samples']:,} training images of all classes together")
    if size["epochs"] < epochs:
        cuts.append(f"{size['epochs']} epochs instead of {epochs}")
    return cuts
