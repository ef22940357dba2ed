"""One round: select, train, aggregate, evaluate. Nowhere else do these stand in a row."""

from collections.abc import Sequence
from typing import NamedTuple

from fedmap import scores
from fedmap.errors import FedmapError
from fedmap.methods import Upload
from fedmap.random import generator, seeded_torch
from fedmap.simulate.engines import Engine
from fedmap.simulate.folder import Record
from fedmap.simulate.tasks import Reply, Setup
from fedmap.simulate.uploads import checked
from fedmap.values import Placed, Values, nbytes, on


class Played(NamedTuple):
    """What a round leaves."""

    round: int
    down: Values  # what every selected client got
    replies: list[Reply]  # of the clients that count, in the order of their numbers
    tested: list[Reply]  # the same, or where samples are pooled, the clients asked afterwards
    left_out: dict[int, str]  # the other selected clients, each with the reason
    state: Values  # the server's new state
    tally: Values | None  # of the new global model on the global test set
    validation: Record  # the new global model on the samples for choosing, where there are some


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
    asked = [0] if setup.method.pooled else selected
    answers = checked(setup, round, down, engine.map("train", round, asked, down))
    replies = [reply for reply in answers if not reply.reason]
    left_out = {reply.key: reply.reason for reply in answers if reply.reason}
    if len(replies) < min(setup.settings.min_clients, len(asked)):
        raise too_few(setup, round, len(replies), left_out)
    state = aggregated(setup, round, state, uploads(setup, replies))
    keep_frozen(setup, state)
    tested = replies
    if setup.method.pooled:
        tested = engine.map("personal", round, selected, setup.method.download(state))
    tally = evaluated(setup, engine, round, state)
    validation = validated(setup, engine, round, state) if setup.settings.validation else {}
    return Played(round, down, replies, tested, left_out, state, tally, validation)


def aggregated(setup: Setup, round: int, state: Values, uploads: list[Upload]) -> Values:
    """The server's new state. It is made on the run's device, and kept on the CPU."""
    kind, server = setup.device.type, setup.server(round)
    here = uploads
    if kind != "cpu":
        here = [upload._replace(up=Placed(upload.up, setup.device)) for upload in uploads]
    # for layers such as dropout
    with seeded_torch(setup.settings.seed, "server layers", round, kind=kind):
        new = setup.method.aggregate(server, on(state, setup.device), here)
    if server.rule.kind != "mean" and not server.averaged:
        raise FedmapError(
            f"method {setup.method.name()}: aggregate is {server.rule.kind!r}, but its server half "
            "never asks for `server.mean`, so that it would change nothing; only 'mean' is allowed"
        )
    return on(new, "cpu")


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


def keep_frozen(setup: Setup, state: Values) -> None:
    """A mean of equal numbers may differ from them in its last bit: parameters that nobody trains
    stay what they were."""
    frozen, model = setup.initial.frozen_part, setup.method.global_model(state)
    if model is not None and frozen.start < frozen.stop:
        model[frozen] = setup.initial.vector[frozen]


def evaluated(setup: Setup, engine: Engine, round: int, state: Values) -> Values | None:
    """The global model's answers on the global test set, counted. None where there is no global
    model, or nobody to ask."""
    model = setup.method.global_model(state)
    if model is None:
        return None
    parts = setup.federation.test_parts
    replies = engine.map("evaluate", round, parts, {"model": model})
    tallies = [reply.tally for reply in replies if not reply.reason]
    return scores.added(tallies) if tallies else None


def validated(setup: Setup, engine: Engine, round: int, state: Values) -> Record:
    """The global model on all samples that clients keep for choosing."""
    model, right, total = setup.method.global_model(state), 0.0, 0.0
    if model is not None:
        clients = range(len(setup.federation))
        for reply in engine.map("validate", round, clients, {"model": model}):
            right += reply.numbers.get("right", 0)
            total += reply.numbers.get("total", 0)
    return {"global_accuracy_validation": right / total if total else None}


def record_of(played: Played) -> Record:
    """A round in numbers, for rounds.jsonl; `seconds` is filled in by who has the clock."""

    def mean(name: str, replies: list[Reply] = played.tested) -> float | None:
        values = [reply.numbers[name] for reply in replies if name in reply.numbers]
        return sum(values) / len(values) if values else None

    record: Record = {
        "round": played.round,
        "global_accuracy": None,
        "personal_accuracy": mean("accuracy"),
        "personal_accuracy_observed": mean("accuracy_observed"),
        "personal_accuracy_download": mean("accuracy_download"),
        "train_loss": mean("loss", played.replies),
        "seconds": 0.0,
        "bytes_down": nbytes(played.down) * len(played.replies),
        "bytes_up": sum(nbytes(reply.up) for reply in played.replies),
        "clients": [
            {
                "client": reply.key,
                "accuracy": reply.numbers["accuracy"],
                "accuracy_observed": reply.numbers["accuracy_observed"],
                "accuracy_download": reply.numbers.get("accuracy_download"),
            }
            for reply in played.tested
        ],
    } | global_accuracy(played.tally)
    if played.validation:
        own = {"personal_accuracy_validation": mean("accuracy_validation")}
        record |= played.validation | own
    if played.left_out:
        record["left_out"] = [
            {"client": key, "reason": reason} for key, reason in played.left_out.items()
        ]
    return record


def global_accuracy(tally: Values | None) -> Record:
    """On the whole global test set and, where the server half saw some of it, on the rest."""
    if tally is None:
        return {"global_accuracy": None}
    accuracy: Record = {"global_accuracy": scores.accuracy(tally)}
    if "confusion_unseen" in tally:
        unseen = {"confusion": tally["confusion_unseen"]}
        accuracy["global_accuracy_unseen"] = scores.accuracy(unseen)
    return accuracy
