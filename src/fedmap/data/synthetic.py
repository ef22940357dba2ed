"""A dataset that is drawn from a seed in milliseconds: smooth class prototypes with noise, for
tests and first steps."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import interpolate

from fedmap.data.dataset import Dataset, Defaults
from fedmap.data.registry import register_dataset
from fedmap.errors import FedmapError
from fedmap.random import generator

DEFAULTS = Defaults(clients=10, rounds=10, fraction=0.5, epochs=1, batch=32)


def synthetic(
    classes: int = 10,
    train: int = 2000,
    test: int = 500,
    shape: tuple[int, ...] = (1, 32, 32),
    seed: int = 0,
    noise: float = 0.5,
) -> Dataset:
    """Samples around one prototype for each class, equally many of each class; images (uint8) for
    a shape of three numbers, vectors for one."""
    if len(shape) not in (1, 3) or min(shape) < 1:
        raise FedmapError(
            f"synthetic data of shape {shape}; (channels, height, width) or (d,) are allowed"
        )
    if classes < 1:
        raise FedmapError(f"synthetic data of {classes} classes; 1 or more are allowed")
    prototypes = _prototypes(generator(seed, "synthetic prototypes"), classes, shape)

    def part(name: str, n: int) -> tuple[Tensor, Tensor]:
        rng = generator(seed, f"synthetic {name}")
        y = torch.from_numpy(rng.permutation(np.arange(n) % classes)).long()
        draws = torch.from_numpy(rng.standard_normal((n, *shape), np.float32))
        x = prototypes[y].add_(draws, alpha=noise)
        if len(shape) == 3:
            x = x.mul_(48).add_(127.5).round_().clamp_(0, 255).to(torch.uint8)
        return x, y

    train_x, train_y = part("train", train)
    test_x, test_y = part("test", test)
    channels = shape[0] if len(shape) == 3 else 0
    return Dataset(
        name="synthetic",
        train_x=train_x,
        train_y=train_y,
        test_x=test_x,
        test_y=test_y,
        classes=tuple(f"class {c}" for c in range(classes)),
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
        defaults=DEFAULTS,
    )


def _prototypes(rng: np.random.Generator, classes: int, shape: tuple[int, ...]) -> Tensor:
    """One pattern for each class with values of unit size; images are smooth, because
    convolutions expect neighbors to agree."""
    if len(shape) == 1:
        return torch.from_numpy(rng.standard_normal((classes, *shape), np.float32))
    coarse = torch.from_numpy(rng.standard_normal((classes, shape[0], 4, 4), np.float32))
    return interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)


@register_dataset(
    "synthetic",
    "2,000 + 500 images of 10 classes, drawn from a seed, for tests and first steps",
    DEFAULTS,
)
def _load(_: Path | None = None) -> Dataset:
    return synthetic()
