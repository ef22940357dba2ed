"""Small nets and federations that train in milliseconds; the command line without a shell."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import nn

from fedmap.cli.main import main
from fedmap.data import synthetic
from fedmap.federation import Federation, partition
from fedmap.nets import NETS, Net


class Tiny(Net):
    """One hidden layer of 8, for vectors and images."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(
            nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), 8), nn.ReLU()),
            8,
            classes,
        )


class TinyBN(Net):
    """One layer with batch norm: a convolution for images, a linear one of 8 for vectors."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        if len(shape) == 3:
            layers = [
                nn.Conv2d(shape[0], 4, 3),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
            ]
        else:
            layers = [nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), 16 if len(shape) == 3 else 8, classes)


NETS.add("tiny")(Tiny)
NETS.add("tiny-bn")(TinyBN)


@pytest.fixture(scope="session")
def federation() -> Federation:
    """Six clients, vectors of four classes, some classes missing."""
    return partition(synthetic(classes=4, train=240, test=80, shape=(6,)), 6, seed=1)


@pytest.fixture(scope="session")
def images() -> Federation:
    """Four clients, 8x8 images of four classes, some classes missing."""
    return partition(synthetic(classes=4, train=160, test=40, shape=(1, 8, 8)), 4, seed=1)


@pytest.fixture(autouse=True)
def _as_many_threads_as_the_engine() -> None:
    """References in tests use one thread, as the engine does, so that sums have the same bits."""
    torch.set_num_threads(1)


class Done(NamedTuple):
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def fedmap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Done]:
    """The command as the shell calls it, in its own folder, in this process: Python does not start
    again each time."""
    monkeypatch.chdir(tmp_path)

    def call(arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["fedmap", *arguments.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return call
