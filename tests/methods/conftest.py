"""A world small enough to compute by hand: three clients that miss classes, a net of 88 weights,
and its formula in plain torch."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmap.client import Client, Training
from fedmap.data import synthetic
from fedmap.federation import Federation
from fedmap.methods import Method, Server, Upload, Values
from fedmap.nets import build
from fedmap.random import generator
from fedmap.vector import Bench, Model

SEED = 3


class Round(NamedTuple):
    """What one round left: uploads and personal models by client, every client's state so far, and
    the server's new state."""

    up: dict[int, Values]
    personal: dict[int, Values]
    states: dict[int, Values]
    server: Values


class World:
    """Three clients: one has classes 0 and 1, one has 1 and 2, one has class 3 alone."""

    training = Training(
        rounds=4, fraction=1, epochs=2, batch=8, lr=0.1, momentum=0.9, weight_decay=0.01
    )

    def __init__(self) -> None:
        dataset = synthetic(classes=4, train=80, test=20, shape=(6,), seed=0)
        owner = np.choose(dataset.train_y.numpy(), [0, np.arange(80) % 2, 1, 2])
        self.federation = Federation(dataset, owner, seed=SEED)

    def client(self, number: int, round: int, net: str = "tiny", **training: Any) -> Client:
        return Client(
            self.federation,
            number,
            round,
            self.training.model_copy(update=training),
            SEED,
            self.bench(net),
        )

    def batches(
        self, number: int, round: int, steps: int | None = None
    ) -> list[tuple[Tensor, Tensor]]:
        """The batches that the client sees in this round."""
        client = self.client(number, round)
        return list(client.batches(client.steps if steps is None else steps))

    def bench(self, net: str = "tiny") -> Bench:
        return Bench(lambda: build(net, (6,), 4, SEED))

    def initial(self, net: str = "tiny") -> Model:
        return Model(build(net, (6,), 4, SEED))

    def play(
        self,
        method: Method,
        rounds: int = 2,
        *,
        net: str = "tiny",
        selected: Sequence[Sequence[int]] = (),
        **training: Any,
    ) -> list[Round]:
        """The method's own halves, round after round, without any engine. All clients take part
        where `selected` does not say."""
        states = {number: method.client_state(self.initial(net)) for number in range(3)}
        server, history = method.start(self.initial(net)), []
        settings = self.training.model_copy(update=training)
        for round in range(1, rounds + 1):
            chosen = selected[round - 1] if selected else range(3)
            down = method.download(server)
            locals_ = {
                k: method.local_round(self.client(k, round, net, **training), down, states[k])
                for k in chosen
            }
            uploads = [Upload(k, 1 / len(locals_), local.up) for k, local in locals_.items()]
            hall = Server(
                round,
                3,
                settings,
                self.bench(net).model,
                self.federation.test_x,
                generator(SEED, "server", round),
            )
            server = method.aggregate(hall, server, uploads)
            states |= {k: local.state for k, local in locals_.items()}
            ups, personal = (
                {k: getattr(local, name) for k, local in locals_.items()}
                for name in ("up", "personal")
            )
            history.append(Round(ups, personal, dict(states), server))
        return history

    def same(self, one: Sequence[Round], other: Sequence[Round]) -> bool:
        """Is the global model the same to the bit after every round?"""
        return all(
            torch.equal(a.server["model"], b.server["model"])
            for a, b in zip(one, other, strict=True)
        )

    # The tiny net by its formula, for references that share nothing with the library but the
    # batches.

    def features(self, w: Tensor, x: Tensor) -> Tensor:
        return torch.relu(x @ w[:48].view(8, 6).T + w[48:56])

    def logits(self, w: Tensor, x: Tensor) -> Tensor:
        return self.features(w, x) @ w[56:].view(4, 8).T

    def cross_entropy(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return -torch.log_softmax(self.logits(w, x), 1)[torch.arange(len(y)), y].mean()

    def sgd(
        self,
        w: Tensor,
        batches: Sequence[tuple[Tensor, Tensor]],
        loss: Callable[[Tensor, Tensor, Tensor], Tensor],
        *,
        lr: float = training.lr,
        momentum: float = training.momentum,
        decay: float = training.weight_decay,
    ) -> Tensor:
        """w after one step on each batch; `loss` is a function of (w, x, y)."""
        velocity = torch.zeros_like(w)
        for x, y in batches:
            at = w.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(loss(at, x, y), at)
            velocity = momentum * velocity + gradient + decay * w
            w = w - lr * velocity
        return w


@pytest.fixture(scope="session")
def world() -> World:
    return World()
