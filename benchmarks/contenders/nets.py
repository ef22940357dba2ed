"""The workloads' nets in plain PyTorch, mathematically those of `fedmap.nets`: a classifier without
bias, the same initialization.

Nothing here knows fedmap; a test compares the two families, parameter by parameter and output by
output."""

import math
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

CLASSES = 10
Shape = tuple[int, ...]


def convolutions(channels: int, *layers: tuple[int, int, int]) -> list[nn.Module]:
    """Blocks of convolution, ReLU and 2x2 max pool; a layer is (outputs, kernel, padding)."""
    blocks: list[nn.Module] = []
    for outputs, kernel, padding in layers:
        blocks += [
            nn.Conv2d(channels, outputs, kernel, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        channels = outputs
    return blocks


def lenet(shape: Shape) -> nn.Sequential:
    hidden = [nn.Flatten(), nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
    return nn.Sequential(
        *convolutions(shape[0], (6, 5, 0), (16, 5, 0)), *hidden, nn.Linear(84, CLASSES, bias=False)
    )


def mlp(shape: Shape) -> nn.Sequential:
    hidden = [
        nn.Flatten(),
        nn.Linear(math.prod(shape), 512),
        nn.ReLU(),
        nn.Linear(512, 512),
        nn.ReLU(),
    ]
    return nn.Sequential(*hidden, nn.Linear(512, CLASSES, bias=False))


def conv2(shape: Shape) -> nn.Sequential:
    hidden = [nn.Flatten(), nn.Linear(64 * (shape[1] // 4) * (shape[2] // 4), 512), nn.ReLU()]
    return nn.Sequential(
        *convolutions(shape[0], (32, 5, 2), (64, 5, 2)),
        *hidden,
        nn.Linear(512, CLASSES, bias=False),
    )


def vgg8(shape: Shape) -> nn.Sequential:
    stages = convolutions(shape[0], *((outputs, 3, 1) for outputs in (64, 128, 256, 512, 512)))
    return nn.Sequential(*stages, nn.Flatten(), nn.Linear(512, CLASSES, bias=False))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.branch = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if inputs != outputs:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.branch(x) + self.shortcut(x))


def resnet20(shape: Shape) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
    ]
    for inputs, outputs in pairwise((16, 16, 32, 64)):
        layers += [
            Residual(inputs, outputs),
            Residual(outputs, outputs),
            Residual(outputs, outputs),
        ]
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, CLASSES, bias=False)
    )


def linear(shape: Shape) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), CLASSES, bias=False))


NETS: dict[str, Callable[[Shape], nn.Sequential]] = {
    "lenet": lenet,
    "mlp": mlp,
    "conv2": conv2,
    "vgg8": vgg8,
    "resnet20": resnet20,
    "linear": linear,
}


def build(name: str, shape: Shape, seed: int = 0) -> nn.Sequential:
    """A freshly initialized net, in training mode."""
    torch.manual_seed(seed)
    net = NETS[name](shape)
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return net


def parameters(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def flop(name: str, shape: Shape) -> tuple[float, float]:
    """What one sample costs, forward alone and in a training step: products and sums of
    convolutions and linear layers.

    A step runs every layer three times (outputs, gradients of weights and of inputs), but nobody
    asks for the images' gradient."""
    costs: list[float] = []

    def measure(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        costs.append(2.0 * output.numel() * layer.weight[0].numel())

    net = build(name, shape).eval()
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.register_forward_hook(measure)
    with torch.no_grad():
        net(torch.zeros(1, *shape))
    return sum(costs), 3 * sum(costs) - costs[0]
