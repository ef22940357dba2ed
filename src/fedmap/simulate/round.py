"""One round: select, train, aggregate, evaluate. Nowhere else do these stand in a row."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.methods import Upload
from fedmap.random import generator, seeded_torch
from fedmap.simulate.engines import Engine
from fedmap.simulate.folder import Record
from fedmap.simulate.tasks import Reply, Setup
from fedmap.simulate.uploads import checked
from fedmap.values import Values, nbytes


class Played(NamedTuple):
    """What a round leaves."""

    round: int
    down: Values  # what every selected client got
    replies: list[Reply]  # of the clients that count, in the order of their numbers
    left_out: dict[int, str]  # the other selected clients, each with the reason
    state: Values  # the server's new state
    tally: Values | None  # of the new global model on the global test set, by class


def play_round(
    setup: Setup,
    engine: Engine,
    round: int,
    state: Values,
    selected: Sequence[int] | None = None,
) -> Played:
    """Select, train, aggregate, evaluate. `selected` is for who knows better which clients should
    take part; else they are drawn."""
    down = setup.method.download(state)
    selected = selected or select(setup, round, engine.ready())
    answers = checked(setup, round, down, engine.map("train", round, selected, down))
    replies = [reply for reply in answers if not reply.reason]
    left_out = {reply.key: reply.reason for reply in answers if reply.reason}
    if len(replies) < min(setup.settings.min_clients, len(selected)):
        raise too_few(setup, round, len(replies), left_out)
    server = setup.server(round)
    with seeded_torch(setup.settings.seed, "server layers", round):  # for layers such as dropout
        state = setup.method.aggregate(server, state, uploads(setup, replies))
    if server.rule.kind != "mean" and not server.averaged:
        raise FedmapError(
            f"method {setup.method.name()}: aggregate is {server.rule.kind!r}, but its server half "
            "never asks for `server.mean`, so that it would change nothing; only 'mean' is allowed"
        )
    tally = evaluated(setup, engine, round, state)
    return Played(round, down, replies, left_out, state, tally)


def select(setup: Setup, round: int, ready: Sequence[int]) -> list[int]:
    """S_t: max(int(Q K), 1) different clients of those that are ready, in the order of their
    numbers."""
    rng = generator(setup.settings.seed, "select", round)
    chosen = rng.choice(len(ready), min(setup.clients_per_round, len(ready)), replace=False)
    return sorted(ready[place] for place in chosen.tolist())


def too_few(setup: Setup, round: int, counted: int, left_out: dict[int, str]) -> FedmapError:
    """The sentence for a round that does not count."""
    names = setup.federation.client_names
    reasons = "; ".join(f"{names[key]}: {reason}" for key, reason in left_out.items())
    return FedmapError(
        f"round {round} has {counted} uploads, min_clients is {setup.settings.min_clients} "
        f"({reasons})"
    )


def uploads(setup: Setup, replies: list[Reply]) -> list[Upload]:
    """What the clients sent, with the weights by which the server counts them."""
    by_samples = setup.settings.server_weights == "samples"
    weights = [reply.numbers["samples"] if by_samples else 1.0 for reply in replies]
    return [
        Upload(reply.key, weight / sum(weights), reply.up)
        for reply, weight in zip(replies, weights, strict=True)
    ]


def evaluated(setup: Setup, engine: Engine, round: int, state: Values) -> Values | None:
    """The global model on the global test set: samples of each class, and how many are classified
    correctly. None where there is no global model, or nobody to ask."""
    model = setup.method.global_model(state)
    if model is None:
        return None
    parts = setup.federation.test_parts
    replies = engine.map("evaluate", round, parts, {"model": model})
    tallies = [reply.result for reply in replies if not reply.reason]
    if not tallies:
        return None
    return {name: torch.stack([tally[name] for tally in tallies]).sum(0) for name in tallies[0]}


def record_of(played: Played) -> Record:
    """A round in numbers, for rounds.jsonl; `seconds` is filled in by who has the clock."""

    def mean(name: str) -> float | None:
        values = [reply.numbers[name] for reply in played.replies if name in reply.numbers]
        return sum(values) / len(values) if values else None

    record: Record = {
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
    } | global_accuracy(played.tally)
    if played.left_out:
        record["left_out"] = [
            {"client": key, "reason": reason} for key, reason in played.left_out.items()
        ]
    return record


def global_accuracy(tally: Values | None) -> Record:
    """On the whole global test set and, where the server half saw some of it, on the rest."""
    if tally is None:
        return {"global_accuracy": None}
    accuracy: Record = {"global_accuracy": share(tally["right"], tally["total"])}
    if "total_unseen" in tally:
        unseen = share(tally["right_unseen"], tally["total_unseen"])
        accuracy["global_accuracy_unseen"] = unseen
    return accuracy


def share(right: Tensor, total: Tensor) -> float | None:
    """Which share of the samples is classified correctly; None where there is none."""
    samples = int(total.sum())
    return int(right.sum()) / samples if samples else None
