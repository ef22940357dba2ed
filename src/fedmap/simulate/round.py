"""One round: select, train, aggregate, evaluate. Nowhere else do these stand in a row."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedmap.methods import Upload
from fedmap.random import generator, seeded_torch
from fedmap.simulate.engines import Engine
from fedmap.simulate.folder import Record
from fedmap.simulate.tasks import PART, Reply, Setup
from fedmap.values import Values, nbytes


class Played(NamedTuple):
    """What a round leaves."""

    round: int
    down: Values  # what every selected client got
    replies: list[Reply]  # of the clients, in the order of their numbers
    state: Values  # the server's new state
    correct: Tensor | None  # which global test samples the new global model classifies correctly


def play_round(
    setup: Setup,
    engine: Engine,
    round: int,
    state: Values,
    selected: Sequence[int] | None = None,
) -> Played:
    """Select, train, aggregate, evaluate. `selected` is for who knows better which clients can take
    part; else they are drawn."""
    down = setup.method.download(state)
    replies = engine.map("train", round, selected or select(setup, round), down)
    with seeded_torch(setup.settings.seed, "server layers", round):  # for layers such as dropout
        state = setup.method.aggregate(setup.server(round), state, uploads(setup, replies))
    return Played(round, down, replies, state, evaluated(setup, engine, round, state))


def select(setup: Setup, round: int) -> list[int]:
    """S_t: max(int(Q K), 1) different clients, in the order of their numbers."""
    rng = generator(setup.settings.seed, "select", round)
    chosen = rng.choice(len(setup.federation), setup.clients_per_round, replace=False)
    return sorted(chosen.tolist())


def uploads(setup: Setup, replies: list[Reply]) -> list[Upload]:
    """What the clients sent, with the weights by which the server counts them."""
    by_samples = setup.settings.server_weights == "samples"
    weights = [reply.numbers["samples"] if by_samples else 1.0 for reply in replies]
    return [
        Upload(reply.key, weight / sum(weights), reply.up)
        for reply, weight in zip(replies, weights, strict=True)
    ]


def evaluated(setup: Setup, engine: Engine, round: int, state: Values) -> Tensor | None:
    """Which samples of the global test set does the global model classify correctly? None where
    there is no global model."""
    model = setup.method.global_model(state)
    if model is None:
        return None
    parts = range(-(-len(setup.federation.test_y) // PART))
    replies = engine.map("evaluate", round, parts, {"model": model})
    return torch.cat([reply.result["correct"] for reply in replies])


def record_of(setup: Setup, played: Played) -> Record:
    """A round in numbers, for rounds.jsonl; `seconds` is filled in by who has the clock."""

    def mean(name: str) -> float | None:
        values = [reply.numbers[name] for reply in played.replies if name in reply.numbers]
        return sum(values) / len(values) if values else None

    return {
        "round": played.round,
        "global_accuracy": None,
        "personal_accuracy": mean("accuracy"),
        "personal_accuracy_download": mean("accuracy_download"),
        "train_loss": mean("loss"),
        "seconds": 0.0,
        "bytes_down": nbytes(played.down) * len(played.replies),
        "bytes_up": sum(nbytes(reply.up) for reply in played.replies),
        "clients": [
            {
                "client": reply.key,
                "accuracy": reply.numbers["accuracy"],
                "accuracy_download": reply.numbers.get("accuracy_download"),
            }
            for reply in played.replies
        ],
    } | global_accuracy(setup, played.correct)


def global_accuracy(setup: Setup, correct: Tensor | None) -> Record:
    """On the whole global test set and, where the server half saw some of it, on the rest."""
    if correct is None:
        return {"global_accuracy": None}
    accuracy: Record = {"global_accuracy": int(correct.sum()) / len(correct)}
    if len(setup.public):
        unseen = torch.ones(len(correct), dtype=torch.bool).index_fill(0, setup.public, False)
        rest = int(unseen.sum())
        accuracy["global_accuracy_unseen"] = int(correct[unseen].sum()) / rest if rest else None
    return accuracy
