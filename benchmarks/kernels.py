"""Chains of convolution blocks and of linear layers, one thread: PyTorch, PyTorch with channels
last, and the native kernels, interleaved.

    python benchmarks/kernels.py [workload ...] [--rounds 30]

Times are the least CPU time of the thread over all rounds. GFLOP/s counts every product of the
dense formulas, forward, weights and inputs (not the first), also those that native code skips
because a factor is zero: it may exceed the machine's peak."""

import argparse
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fedmap import kernels
from fedmap.kernels import Block
from fedmap.kernels.linear import Layers, straight_gradients

BATCH = 64


class Layer(NamedTuple):
    outputs: int
    kernel: int
    padding: int
    pool: bool


Image = tuple[int, int, int]
WORKLOADS: dict[str, tuple[Image, list[Layer]]] = {
    "lenet": ((1, 32, 32), [Layer(6, 5, 0, True), Layer(16, 5, 0, True)]),
    "conv2": ((3, 32, 32), [Layer(32, 5, 2, True), Layer(64, 5, 2, True)]),
    "femnist": ((1, 28, 28), [Layer(32, 5, 2, True), Layer(64, 5, 2, False)]),
    "tfcnn": ((3, 32, 32), [Layer(32, 3, 1, True), Layer(64, 3, 1, True), Layer(64, 3, 1, True)]),
}
LINEAR = {"mlp": (1024, 512, 512)}
MORE = {  # slower, to see where the native kernels stop paying
    "vgg8": (
        (3, 32, 32),
        [
            Layer(64, 3, 1, True),
            Layer(128, 3, 1, True),
            Layer(256, 3, 1, True),
            Layer(512, 3, 1, True),
            Layer(512, 3, 1, True),
        ],
    ),
    "64-64": ((64, 16, 16), [Layer(64, 3, 1, False)]),
    "64-128": ((64, 16, 16), [Layer(128, 3, 1, True)]),
    "128-256": ((128, 8, 8), [Layer(256, 3, 1, True)]),
    "256-256": ((256, 8, 8), [Layer(256, 3, 1, False)]),
    "256-512": ((256, 4, 4), [Layer(512, 3, 1, True)]),
    "512-512": ((512, 2, 2), [Layer(512, 3, 1, True)]),
    "1x1": ((64, 16, 16), [Layer(64, 1, 0, False)]),
    "7x7": ((16, 16, 16), [Layer(16, 7, 3, True), Layer(16, 7, 3, True)]),
}


class Case(NamedTuple):
    forward: Callable[[], Tensor]
    flop: float


def convolutions(image: Image, layers: Sequence[Layer], memory: torch.memory_format) -> Case:
    torch.manual_seed(0)
    channels, height, width = image
    blocks, flop = [], 0.0
    for i, (outputs, kernel, padding, pool) in enumerate(layers):
        scale = (2 / (channels * kernel**2)) ** 0.5
        weight = torch.randn(outputs, channels, kernel, kernel) * scale
        weight = weight.contiguous(memory_format=memory).requires_grad_()
        blocks.append(Block(weight, torch.zeros(outputs, requires_grad=True), padding, pool))
        height, width = height + 2 * padding - kernel + 1, width + 2 * padding - kernel + 1
        flop += 2.0 * BATCH * height * width * weight.numel() * (3 if i else 2)
        if pool:
            height, width = height // 2, width // 2
        channels = outputs
    x = torch.randn(BATCH, *image).contiguous(memory_format=memory)
    return Case(lambda: kernels.conv_blocks(x, blocks), flop)


def linear_layers(sizes: Sequence[int]) -> Case:
    """Each with its ReLU, on noise, of which a ReLU leaves half. Gradients add up, as in a step of
    training."""
    torch.manual_seed(0)
    pairs = list(pairwise(sizes))
    net = Layers(*(layer for size in pairs for layer in (nn.Linear(*size), nn.ReLU())))
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    x = torch.randn(BATCH, sizes[0])
    flop = sum(2.0 * BATCH * i * o * (3 if n else 2) for n, (i, o) in enumerate(pairs))
    return Case(lambda: net(x), flop)


def once(kind: kernels.Kind, case: Case) -> tuple[float, float]:
    """Seconds of the way forward, and of both ways."""
    with kernels.in_force(kind), straight_gradients():
        start = time.thread_time()
        y = case.forward()
        middle = time.thread_time()
        torch.autograd.backward(y, torch.ones_like(y))
        return middle - start, time.thread_time() - start


def row(*cells: str) -> str:
    return f"{cells[0]:10}{cells[1]:16}" + "".join(f"{cell:>18}" for cell in cells[2:])


def contenders(name: str) -> dict[str, tuple[kernels.Kind, Case]]:
    """What is timed of a workload."""
    if name in LINEAR:
        case = linear_layers(LINEAR[name])
        return {"torch": ("torch", case), "native": ("native", case)}
    image, layers = (WORKLOADS | MORE)[name]
    case = convolutions(image, layers, torch.contiguous_format)
    last = convolutions(image, layers, torch.channels_last)
    return {"torch": ("torch", case), "channels last": ("torch", last), "native": ("native", case)}


def compare(name: str, rounds: int) -> None:
    cases = contenders(name)
    times: dict[str, list[tuple[float, float]]] = {contender: [] for contender in cases}
    for _ in range(rounds):
        for contender, (kind, case) in cases.items():
            times[contender].append(once(kind, case))
    best = {
        contender: [min(column) for column in zip(*pairs, strict=True)]
        for contender, pairs in times.items()
    }
    for contender, seconds in best.items():
        cells = [
            f"{one * 1e3:.2f} ({reference / one:.1f}x)"
            for one, reference in zip(seconds, best["torch"], strict=True)
        ]
        rate = cases[contender][1].flop / seconds[1]
        print(row(name, contender, *cells, f"{rate / 1e9:.0f}"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "workload",
        nargs="*",
        default=[*WORKLOADS, *LINEAR],
        help=", ".join([*WORKLOADS, *LINEAR, *MORE]),
    )
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(row("chain", "kernels", "forward ms", "with backward ms", "GFLOP/s"))
    for name in arguments.workload:
        compare(name, arguments.rounds)


if __name__ == "__main__":
    main()
