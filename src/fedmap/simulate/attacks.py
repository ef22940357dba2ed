"""Clients that do harm, to see what a run withstands: who they are, and what they do. Only a
simulation has them; a site refuses to be one."""

from collections.abc import Mapping
from dataclasses import replace
from math import sqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fedmap.federation import ClientData
from fedmap.random import generator
from fedmap.values import Values

Attack = Literal["none", "labels", "signs", "noise"]


def attackers(seed: int, share: float, clients: int) -> frozenset[int]:
    """Which clients attack: a share of all, drawn once."""
    drawn = generator(seed, "attackers").permutation(clients)[: round(share * clients)]
    return frozenset(drawn.tolist())


def with_flipped_labels(data: ClientData, classes: int) -> ClientData:
    """The same samples for training, of class C - 1 - y each. Its test samples stay true."""
    x, y = data.train
    counts, observed = data.counts.flip(0), data.observed.flip(0)
    return replace(data, train=(x, classes - 1 - y), counts=counts, observed=observed)


def spoiled(
    attack: Attack, up: Values, down: Mapping[str, Tensor], rng: np.random.Generator
) -> Values:
    """What an attacker sends in place of its upload: the way that each entry went backwards
    (signs), or noise as long as it (noise). What has no entry in `down` went from zero."""
    return {name: _spoiled(attack, value, down.get(name), rng) for name, value in up.items()}


def _spoiled(
    attack: Attack, value: Tensor, before: Tensor | None, rng: np.random.Generator
) -> Tensor:
    if not value.is_floating_point():
        return value
    start = torch.zeros_like(value) if before is None else before
    way: Tensor = value - start
    if attack == "signs":
        return start - way
    noise: Tensor = torch.from_numpy(rng.standard_normal(tuple(way.shape))).to(way)
    deviation = float(torch.linalg.vector_norm(way)) / sqrt(max(way.numel(), 1))
    return start + deviation * noise
