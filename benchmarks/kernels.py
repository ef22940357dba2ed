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
from typing import Literal, NamedTuple

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
Kernels = Literal["native", "torch"]
WORKLOADS: dict[str, tuple[Image, list[Layer]]] = {
    "lenet": ((1, 32, 32), [Layer(6, 5, 0, True), Layer(16, 5, 0, True)]),
    "w3": ((3, 32, 32), [Layer(32, 5, 2, True), Layer(64, 5, 2, True)]),
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
        weight = (
            torch.randn(outputs, channels, kernel, kernel) * (2 / (channels * kernel**2)) ** 0.5
        )
        weight = weight.contiguous(memory_format=memory)
        blocks.append(
            Block(weight.requires_grad_(), torch.zeros(outputs, requires_grad=True), padding, pool)
        )
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
    return Case(
        lambda: net(x), sum(2.0 * BATCH * i * o * (3 if n else 2) for n, (i, o) in enumerate(pairs))
    )


def once(choice: Kernels, case: Case) -> tuple[float, float]:
    kernels.use(choice)
    with straight_gradients():
        start = time.thread_time()
        y = case.forward()
        middle = time.thread_time()
        torch.autograd.backward(y, torch.ones_like(y))
        return middle - start, time.thread_time() - start


def row(*cells: str) -> str:
    return f"{cells[0]:10}{cells[1]:16}" + "".join(f"{cell:>18}" for cell in cells[2:])


def compare(name: str, rounds: int) -> None:
    contenders: dict[str, tuple[Kernels, Case]]
    if name in LINEAR:
        made = linear_layers(LINEAR[name])
        contenders = {"torch": ("torch", made), "native": ("native", made)}
    else:
        image, layers = (WORKLOADS | MORE)[name]
        made = convolutions(image, layers, torch.contiguous_format)
        last = convolutions(image, layers, torch.channels_last)
        contenders = {
            "torch": ("torch", made),
            "channels last": ("torch", last),
            "native": ("native", made),
        }
    times: dict[str, list[tuple[float, float]]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender, (choice, its) in contenders.items():
            times[contender].append(once(choice, its))
    best = {
        contender: tuple(min(column) for column in zip(*both, strict=True))
        for contender, both in times.items()
    }
    reference = best["torch"]
    for contender, (forward, both) in best.items():
        cells = [
            f"{one * 1e3:.2f} ({whole / one:.1f}x)"
            for one, whole in zip((forward, both), reference, strict=True)
        ]
        print(row(name, contender, *cells, f"{made.flop / both / 1e9:.0f}"))


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
