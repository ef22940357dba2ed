"""What every contender shares: the workload, its data, and the turns that the harness gives. It
needs torch alone, since each peer runs in an environment of its own."""

import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nets import CLASSES, build, parameters

EVALUATION_BATCH = 250
Pair = tuple[Tensor, Tensor]
N = TypeVar("N", bound=nn.Module)


@dataclass(frozen=True)
class Workload:
    """One round's work. Every client has the same number of samples, so that it does not matter who
    is drawn."""

    net: str
    shape: tuple[int, ...]
    train: int  # samples of each client
    test: int
    global_test: int
    epochs: int
    clients: int = 100
    clients_a_round: int = 20
    batch: int = 64
    lr: float = 0.03
    momentum: float = 0.9
    weight_decay: float = 1e-5
    method: str = "fedavg"
    rounds: int = 1
    # the harness compares the contenders' work before it times them; a timed round counts nothing
    count: bool = False
    data: str = "noise"  # or the data set that the harness has put into the file `images`
    images: str = ""
    # the contender's own, such as fedmap's kernels
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str) -> "Workload":
        given = json.loads(text)
        return cls(**given | {"shape": tuple(given["shape"])})

    def write(self) -> str:
        return json.dumps(asdict(self))

    @property
    def fraction(self) -> float:
        return self.clients_a_round / self.clients

    @property
    def steps(self) -> int:
        """SGD steps in a round. Ditto trains a second model for as long again."""
        of_a_client = self.epochs * math.ceil(self.train / self.batch)
        return self.clients_a_round * of_a_client * (2 if self.method == "ditto" else 1)

    @property
    def scored(self) -> int:
        """Samples that are classified for accuracies: the global model's, and each trained client's
        own."""
        return self.global_test + self.clients_a_round * self.test

    def build(self) -> nn.Sequential:
        net = build(self.net, self.shape)
        return counted(net) if self.count else net

    def optimizer(self, net: nn.Module) -> torch.optim.SGD:
        """Scaffold's variates are made for plain SGD; every other method has momentum and decay."""
        if self.method == "scaffold":
            return torch.optim.SGD(net.parameters(), lr=self.lr)
        return torch.optim.SGD(
            net.parameters(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )


class Data:
    """The same samples for every contender, real images or noise; a client's lie together, first
    those to train on."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        each = workload.train + workload.test
        self.x, self.y = self._samples("train", workload.clients * each)
        self.owner = torch.arange(workload.clients).repeat_interleave(each)
        self.global_test = self._samples("test", workload.global_test)

    def _samples(self, part: str, n: int) -> Pair:
        if self.workload.images:
            pixels, labels = torch.load(self.workload.images)[part]
            return pixels[:n].float().div_(127.5).sub_(1), labels[:n]
        rng = torch.Generator().manual_seed(0 if part == "train" else 1)
        x = torch.randn(n, *self.workload.shape, generator=rng)
        return x, torch.randint(CLASSES, (n,), generator=rng)

    def _part(self, client: int, start: int, stop: int) -> Pair:
        first = client * (self.workload.train + self.workload.test)
        return self.x[first + start : first + stop], self.y[first + start : first + stop]

    def train(self, client: int) -> Pair:
        return self._part(client, 0, self.workload.train)

    def test(self, client: int) -> Pair:
        return self._part(client, self.workload.train, self.workload.train + self.workload.test)


class Batches:
    """A loader without a DataLoader's costs: a new order each time, the last and short batch
    included."""

    def __init__(self, x: Tensor, y: Tensor, size: int) -> None:
        self.x, self.y, self.size = x, y, size

    def __len__(self) -> int:
        return math.ceil(len(self.y) / self.size)

    def __iter__(self) -> Iterator[Pair]:
        for index in torch.split(torch.randperm(len(self.y)), self.size):
            yield self.x[index], self.y[index]


def train(net: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches, epochs: int) -> None:
    """The usual loop, for contenders whose users write it themselves."""
    net.train()
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def accuracy(net: nn.Module, x: Tensor, y: Tensor) -> float:
    net.eval()
    parts = zip(torch.split(x, EVALUATION_BATCH), torch.split(y, EVALUATION_BATCH), strict=True)
    with torch.inference_mode():
        right = sum(int((net(samples).argmax(1) == labels).sum()) for samples, labels in parts)
    return right / len(y)


# Counted by the nets themselves; in shared memory, so that forked workers count too.
STEPS, SCORED = multiprocessing.Value("q"), multiprocessing.Value("q")


def add(steps: int, scored: int) -> None:
    for counter, more in ((STEPS, steps), (SCORED, scored)):
        with counter.get_lock():
            counter.value += more


def count(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    if layer.training:
        add(1, 0)
    else:
        add(0, len(inputs[0]))


def counted(net: N) -> N:
    """The net, whose classifier counts how often it trains and how many samples it scores."""
    linear = [layer for layer in net.modules() if isinstance(layer, nn.Linear)]
    linear[-1].register_forward_pre_hook(count)
    return net


class Turns:
    """The harness writes a line, the contender does one round and answers with a line; in between
    it waits and uses no CPU."""

    def __init__(self) -> None:
        # Answers go to the real standard output; whatever else is printed joins the log on standard
        # error.
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self._began = 0.0

    def begin(self, net: nn.Module, *packages: str, **repositories: str) -> None:
        """All is set up: wait for the first round. A peer that is no package is named with its
        commit."""
        versions = {name: version(name) for name in ("torch", *packages)} | repositories
        self._answer({"parameters": parameters(net), "versions": versions})

    def end(self) -> None:
        """A round is done: answer, and wait for the next one."""
        seconds = time.perf_counter() - self._began
        self._answer({"seconds": seconds, "steps": STEPS.value, "scored": SCORED.value})

    def _answer(self, what: dict[str, Any]) -> None:
        print(json.dumps(what), file=self._answers, flush=True)
        if not sys.stdin.readline():
            # no more rounds; frameworks that own their loop know no other way to leave it
            os._exit(0)
        add(-STEPS.value, -SCORED.value)
        self._began = time.perf_counter()


def given() -> Workload:
    """The workload on the command line."""
    return Workload.read(sys.argv[1])


def commit_of(checkout: str) -> str:
    """The commit of a peer's repository, where git knows it."""
    command = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "of an unknown commit"
