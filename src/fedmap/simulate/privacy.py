"""Differential privacy of the models that a run makes, at the level of whole clients: each client
shortens the change that it sends and adds its part of the noise; the accountant says what the
sum of all rounds gives away.

With m clients in a round each adds N(0, z^2 C^2 / m) to a change of length at most C, so the sum
carries N(0, z^2 C^2). That is the Gaussian mechanism for who sees the models, not for a server
that looks at single uploads (docs/guide/robust-and-private.md)."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from fedmap.errors import DivergenceError, FedmapError
from fedmap.values import Values
from fedmap.vector import shorten


def require_accountant() -> None:
    """A sentence where the accountant is not installed."""
    try:
        import dp_accounting.rdp  # noqa: F401
    except ImportError:
        raise FedmapError(
            "dp_noise needs an accountant of differential privacy; "
            "get one with: pip install 'fedmap[dp]'"
        ) from None


def private(
    up: Values, down: Values, clip: float, deviation: float, rng: np.random.Generator
) -> Values:
    """The upload with all its changes, taken as one vector, shortened to `clip`, and noise of this
    deviation on every number."""
    ways = {name: value - down[name] for name, value in up.items()}
    if not all(torch.linalg.vector_norm(way) < torch.inf for way in ways.values()):
        # It could not be shortened, so nothing would bound what leaves the client.
        raise DivergenceError(
            "a client's change of the model is not finite, or too large to be squared; with "
            "dp_clip it does not leave the client"
        )
    shorten(list(ways.values()), clip)
    return {name: down[name] + way + _noise(way, deviation, rng) for name, way in ways.items()}


def _noise(like: torch.Tensor, deviation: float, rng: np.random.Generator) -> torch.Tensor:
    if not deviation:
        return torch.zeros_like(like)
    drawn = rng.standard_normal(tuple(like.shape), np.float32)
    return torch.from_numpy(drawn).to(like) * deviation


def epsilon(
    noise: float, delta: float, clients: int, asked: int, counted: Sequence[int], drawn: bool
) -> float:
    """Epsilon of all rounds so far, by Rényi differential privacy, for two federations of which one
    client has other data.

    In each round `asked` of all clients were to take part; `counted` says how many did, and so how
    many parts of the noise the sum has. Two sums differ by up to 2 C. Where clients are drawn, in
    secret and without replacement, each round counts less (Wang, Balle and Kasiviswanathan,
    AISTATS 2019)."""
    from dp_accounting import rdp

    curves = [
        _curve((arrived / asked) ** 0.5 * noise / 2, clients, asked if drawn else clients)
        for arrived in counted
    ]
    orders = curves[0][0]
    return float(rdp.compute_epsilon(orders, sum(curve for _, curve in curves), delta)[0])


@cache
def _curve(multiplier: float, clients: int, drawn: int) -> tuple[Any, Any]:
    """The orders, and the Rényi divergence of one round at each."""
    import dp_accounting as dp
    from dp_accounting import rdp

    event: dp.DpEvent = dp.GaussianDpEvent(multiplier)
    if drawn < clients:
        event = dp.SampledWithoutReplacementDpEvent(clients, drawn, event)
    accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(event)
    return accountant.orders, accountant.rdp
