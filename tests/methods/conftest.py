"""A world small enough to compute by hand: three clients that miss classes, a net of 88 weights,
and its formula in plain torch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmap import run
from fedmap.client import Client
from fedmap.data import synthetic
from fedmap.federation import Federation
from fedmap.methods import AnyMethod, Local
from fedmap.simulate import Settings
from fedmap.simulate.engines.local import LocalEngine
from fedmap.simulate.round import play_round
from fedmap.simulate.store import FileStore
from fedmap.simulate.tasks import Setup
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels

SEED = 3
T = TypeVar("T")


class Round(NamedTuple):
    """What one round left: uploads and personal models by client, every client's state so far, and
    the server's new state."""

    up: dict[int, Values]
    personal: dict[int, Values]
    states: dict[int, Values]
    server: Values


class World:
    """Three clients: one has classes 0 and 1, one has 1 and 2, one has class 3 alone."""

    training = Settings(
        rounds=4, fraction=1, epochs=2, batch=8, lr=0.1, momentum=0.9, weight_decay=0.01,
        seed=SEED, data="synthetic", kernels="torch",
    )  # fmt: skip

    def __init__(self) -> None:
        dataset = synthetic(classes=4, train=80, test=20, shape=(6,), seed=0)
        owner = np.choose(dataset.train_y.numpy(), [0, np.arange(80) % 2, 1, 2])
        self.federation = Federation(dataset, owner, seed=SEED)

    def setup(self, method: AnyMethod | None = None, net: str = "tiny", **training: Any) -> Setup:
        """The method, FedAvg if none is given, on these clients."""
        settings = self.training.model_copy(update={"method": "fedavg", "net": net} | training)
        return Setup(settings, self.federation, method)

    def client(self, number: int, round: int, net: str = "tiny", **training: Any) -> Client:
        return self.setup(net=net, **training).client(number, round)

    def batches(
        self, number: int, round: int, steps: int | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """The batches that the client sees in this round."""
        client = self.client(number, round)
        return list(client.batches(client.steps if steps is None else steps))

    def models(self, net: str = "tiny") -> WorkingModels:
        return self.setup(net=net).models

    def initial(self, net: str = "tiny") -> Model:
        return self.setup(net=net).initial

    def play(
        self,
        method: AnyMethod,
        rounds: int = 2,
        *,
        net: str = "tiny",
        selected: Sequence[Sequence[int]] = (),
        **training: Any,
    ) -> list[Round]:
        """The method, round after round. All clients take part where `selected` does not say."""
        setup = self.setup(method, net, **training)
        store = FileStore(method.client_state(setup.initial), 3)
        engine, state = LocalEngine(setup, store), method.start(setup.initial)
        history = []
        with recorded(method) as locals_:
            for round in range(1, rounds + 1):
                chosen = selected[round - 1] if selected else range(3)
                locals_.clear()
                state = play_round(setup, engine, round, state, list(chosen)).state
                states = {k: store[k] for k in range(3)}
                up = {k: local.up for k, local in locals_.items()}
                personal = {k: local.personal for k, local in locals_.items()}
                history.append(Round(up, personal, states, state))
        return history

    def same(self, one: Sequence[Round], other: Sequence[Round]) -> bool:
        """Is the global model the same to the bit after every round?"""
        return all(
            torch.equal(a.server["model"], b.server["model"])
            for a, b in zip(one, other, strict=True)
        )

    def record(self, method: str, net: str = "tiny", **params: Any) -> dict[str, Any]:
        """What a run says of its only round."""
        once: dict[str, Any] = {"net": net, "rounds": 1, "fraction": 1, "epochs": 1, "seed": SEED}
        return run(method, self.federation, params=params, **once).rounds[0]

    def assert_kept(self, method: AnyMethod) -> None:
        """From its first participation on, a client keeps the personal model that it had last."""

        def kept(client: int, state: Values, server: Values) -> Values | None:
            down = method.download(server)
            return method.kept_personal(self.client(client, 3), down, state)

        start = method.start(self.initial())
        assert kept(0, method.client_state(self.initial()), start) is None
        first, second = self.play(method, selected=[[0, 1], [1, 2]])
        absent, again = (present(kept(k, second.states[k], second.server))["model"] for k in (0, 1))
        assert torch.equal(absent, first.personal[0]["model"])
        assert torch.equal(again, second.personal[1]["model"])
        assert not torch.equal(again, first.personal[1]["model"])
        assert [int(second.states[k]["participations"]) for k in range(3)] == [1, 2, 1]

    def mean(self, vectors: Iterable[Tensor]) -> Tensor:
        return torch.stack(list(vectors)).mean(0)

    # The tiny net by its formula, for references that share nothing with the library but the
    # batches.

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.relu(x @ w[:48].view(8, 6).T + w[48:56])

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        return self.features(w, x) @ w[56:].view(4, 8).T

    def cross_entropy(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -torch.log_softmax(self.logits(w, x), 1)[torch.arange(len(y)), y].mean()

    def mmd(self, h: Tensor, other: Tensor) -> Tensor:
        """Eq. 12, pair by pair."""
        both = torch.cat([h, other])
        squared = (both[:, None] - both[None]).square().sum(2)
        bandwidth = float(squared.detach().sum()) / (len(both) * (len(both) - 1)) + 1e-8
        kernel = torch.stack([torch.exp(-squared / (bandwidth * 2.0**i)) for i in range(-2, 3)])
        signs = torch.cat([torch.ones(len(h)) / len(h), -torch.ones(len(other)) / len(other)])
        return signs @ kernel.sum(0) @ signs

    def taught(
        self, w: Tensor, x: Tensor, y: Tensor, hpm: Tensor, share: float, transfer: str = "kd"
    ) -> Tensor:
        """Eq. 13 with a temperature of 4."""
        if transfer == "kd":
            p, q = (torch.softmax(self.logits(at, x) / 4, 1) for at in (hpm, w))
            knowledge = 16 * (p * (p / q).log()).sum(1).mean()
        else:
            knowledge = self.mmd(self.features(w, x), self.features(hpm, x))
        return (1 - share) * self.cross_entropy(w, x, y) + share * knowledge

    def sgd(
        self,
        w: Tensor,
        batches: Sequence[tuple[Tensor, Tensor]],
        loss: Callable[[Tensor, Tensor, Tensor], Tensor],
        *,
        lr: float = training.lr,
        momentum: float = training.momentum,
        decay: float = training.weight_decay,
        clip: float | None = None,
    ) -> Tensor:
        """w after one step on each batch; `loss` is a function of (w, x, y). No gradient is longer
        than `clip`."""
        velocity = torch.zeros_like(w)
        for x, y in batches:
            at = w.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(at, x, y), at)
            if clip is not None:
                gradient = gradient * min(clip / float(gradient.norm()), 1)
            velocity = momentum * velocity + gradient + decay * w
            w = w - lr * velocity
        return w


def present(value: T | None) -> T:
    """The value, which must be there."""
    assert value is not None
    return value


def assert_gradient(
    ours: Callable[[Tensor], Tensor], by_hand: Callable[[Tensor], Tensor], at: Tensor
) -> None:
    """Both functions have the same value here, and the gradient of ours is the slopes of the other,
    by finite differences."""
    at = at.detach().double().requires_grad_()
    value = ours(at)
    (gradient,) = torch.autograd.grad(value, at)
    at = at.detach()
    torch.testing.assert_close(value.detach(), by_hand(at))
    steps = 1e-6 * torch.eye(at.numel(), dtype=at.dtype).view(-1, *at.shape)
    slopes = [(by_hand(at + step) - by_hand(at - step)) / 2e-6 for step in steps]
    torch.testing.assert_close(gradient.flatten(), torch.stack(slopes), rtol=1e-5, atol=1e-7)


def models_taken(client: Client) -> list[Model]:
    """The working models that the client takes from now on."""
    taken: list[Model] = []
    lend = client.model

    def model(vector: Tensor) -> Model:
        taken.append(lend(vector))
        return taken[-1]

    client.model = model
    return taken


@contextmanager
def recorded(method: AnyMethod) -> Iterator[dict[int, Local]]:
    """What the method's local rounds give, by client."""
    locals_: dict[int, Local] = {}
    original = method.local_round

    def local_round(client: Client, down: Values, state: Values) -> Local:
        local = locals_[client.number] = original(client, down, state)
        left = [*local.up.values(), *local.state.values(), *local.personal.values()]
        assert not any(value.requires_grad for value in left)  # a graph would hold the whole round
        return local

    method.local_round = local_round  # type: ignore[method-assign]
    try:
        yield locals_
    finally:
        del method.local_round


@pytest.fixture(scope="session")
def world() -> World:
    return World()
