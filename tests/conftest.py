"""Small nets and federations that train in milliseconds; the command line without a shell."""

import fcntl
import os
import site
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import nn

from fedmap.cli.main import main
from fedmap.data import synthetic
from fedmap.federation import Federation, partition
from fedmap.nets import NETS, Net
from fedmap.simulate.run import run

settings.register_profile("patient", deadline=None)  # a test may be slow on a busy machine
settings.load_profile("patient")


class Tiny(Net):
    """One hidden layer of 8, for vectors and images."""

    width = 8

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        hidden = nn.Linear(torch.Size(shape).numel(), self.width)
        super().__init__(nn.Sequential(nn.Flatten(), hidden, nn.ReLU()), self.width, classes)


class TinyWide(Tiny):
    """One hidden layer of 16: a simplex of ten classes needs ten features."""

    width = 16


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
NETS.add("tiny-wide")(TinyWide)
NETS.add("tiny-bn")(TinyBN)


@pytest.fixture(scope="session")
def federation() -> Federation:
    """Six clients, vectors of four classes, some classes missing."""
    return partition(synthetic(classes=4, train=240, test=80, shape=(6,)), 6, seed=1)


@pytest.fixture(scope="session")
def images() -> Federation:
    """Four clients, 8x8 images of four classes, some classes missing."""
    return partition(synthetic(classes=4, train=160, test=40, shape=(1, 8, 8)), 4, seed=1)


HOSTILE_CLIENTS = ["oslo", "<b>bergen</b>", '"><img src=x onerror=alert(1)>', "molde"]
HOSTILE_CLASSES = ["<script>document.title = 'taken'</script>", "</script><h1>x", "plain | & a"]


@pytest.fixture(scope="session")
def hostile_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three methods with two seeds each, whose clients and classes have names that a page
    must not obey. Client k misses class k; the last one has all."""
    rng, clients = np.random.default_rng(0), {}
    for k, name in enumerate(HOSTILE_CLIENTS):
        y = np.array([c for c in range(3) if c != k] * 20)
        clients[name] = (rng.standard_normal((len(y), 4)) + 2 * np.eye(3, 4)[y], y)
    own = Federation.from_arrays(clients, classes=HOSTILE_CLASSES)
    folder = tmp_path_factory.mktemp("hostile")
    for method in ("local", "fedavg", "map"):
        for seed in (0, 1):
            out = folder / f"{method}-{seed}"
            run(method, own, net="tiny", rounds=7, fraction=0.5, epochs=1, seed=seed, out=out)
    return folder


@pytest.fixture(autouse=True)
def _as_many_threads_as_the_engine() -> None:
    """References in tests use one thread, as the engine does, so that sums have the same bits."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment with fedmap installed from the source, as a new user has it;
    one for all processes of the tests. What fedmap needs is borrowed from this environment; fedmap
    itself is not."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "new-environment"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            install(folder)
            (folder / "installed").touch()
    return folder / "bin"


def install(folder: Path) -> None:
    """Make the environment."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A folder in a .pth file is searched, but its own .pth files, such as the one that leads to
    # this source, are not read.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install"]
    words = ["--quiet", "--no-deps", "--no-build-isolation", str(Path(__file__).parent.parent)]
    subprocess.run([*pip, *words], check=True)


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
