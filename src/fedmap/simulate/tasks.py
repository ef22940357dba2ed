"""The work of one task, wherever it runs: a client's round, a part of the global test set, a
client's final personal model."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from fedmap.client import EVALUATION_BATCH, Client, Training, correct_answers
from fedmap.federation import Federation
from fedmap.methods import Method, Values, tensor
from fedmap.simulate.store import StateStore
from fedmap.vector import Bench

PART = 4 * EVALUATION_BATCH  # samples of the global test set in one task


class Reply(NamedTuple):
    """What a task gives back. Tensors are valid until the engine's next call."""

    key: int  # the client, or the part of the test set
    numbers: dict[str, float]
    up: Values = {}
    result: Values = {}


class Workshop:
    """All that a process needs to do any task of a run."""

    def __init__(
        self,
        federation: Federation,
        method: Method,
        training: Training,
        seed: int,
        bench: Bench,
        store: StateStore,
    ) -> None:
        self.federation = federation
        self.method = method
        self.training = training
        self.seed = seed
        self.bench = bench
        self.store = store

    def do(self, task: str, round: int, key: int, down: Values) -> Reply:
        """A task by name: train, evaluate or personal."""
        self.bench.clear()
        tasks: dict[str, Callable[[int, int, Values], Reply]] = {
            "train": self.train,
            "evaluate": self.evaluate,
            "personal": self.personal,
        }
        # whatever the caller's mode: a model may be asked for under no_grad
        with torch.enable_grad():
            return tasks[task](round, key, down)

    def _client(self, number: int, round: int) -> Client:
        return Client(self.federation, number, round, self.training, self.seed, self.bench)

    def train(self, round: int, number: int, down: Values) -> Reply:
        """One client's round, with its accuracy before and after. The state that it leaves goes
        from here into the store, whichever process this is: it counts once the round is committed.
        """
        client, state = self._client(number, round), self.store[number]
        numbers: dict[str, float] = {"samples": client.samples}
        before = self.method.downloaded(down, state)
        if before is not None:
            numbers["accuracy_download"] = client.accuracy(
                self.method.predictor(self.bench, before)
            )
        local = self.method.local_round(client, down, state)
        numbers["loss"] = client.mean_loss
        numbers["accuracy"] = client.accuracy(self.method.predictor(self.bench, local.personal))
        self.store.put(number, round, local.state)
        return Reply(number, numbers, up=local.up)

    def evaluate(self, round: int, part: int, down: Values) -> Reply:
        """Which samples of one part of the global test set does the model classify rightly?"""
        here = slice(part * PART, (part + 1) * PART)
        x, y = (
            self.federation.dataset.normalize(self.federation.test_x[here]),
            self.federation.test_y[here],
        )
        return Reply(
            part,
            {},
            result={"correct": correct_answers(self.bench.model(tensor(down, "model")), x, y)},
        )

    def personal(self, round: int, number: int, down: Values) -> Reply:
        """The personal model that a client ends with: the one it keeps, or what a round from the
        final download gives."""
        client, state = self._client(number, round), self.store[number]
        personal = (
            self.method.kept_personal(state)
            or self.method.local_round(client, down, state).personal
        )
        return Reply(
            number,
            {"accuracy": client.accuracy(self.method.predictor(self.bench, personal))},
            result=personal,
        )
