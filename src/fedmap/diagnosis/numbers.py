"""The numbers of a diagnosis: what the labels say of the clients, and what one local round of
FedAvg does to a few of them."""

from dataclasses import dataclass
from statistics import mean, median
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedmap.federation import Federation
from fedmap.simulate.round import aggregated, uploads
from fedmap.simulate.tasks import Setup, do, tested
from fedmap.values import Values
from fedmap.vector import Model

MOST_TRAINED = 8  # clients that are trained for a round


class Trained(NamedTuple):
    """What one local round did to one client. Distances are means over classes."""

    client: int
    loss: float  # mean over the round's steps
    observed: float  # how far the proxies of its own classes moved
    missing: float | None  # how far those of other classes did; None where it misses none
    together: float | None  # mean cosine between the moves of two missing classes
    accuracy: float  # of its model after the round, on its own test samples
    download: float  # of the average of these clients' models, which it would download next
    download_own: float  # the same, choosing among its own classes


@dataclass(frozen=True)
class Numbers:
    """Of the whole federation. Accuracies are shares in 0..1; what nobody has is None."""

    clients: int
    classes: int
    clients_that_miss: int  # at least one class
    observed_from: int  # training samples from which on a client has a class
    missing_mean: float  # classes that a client misses
    missing_most: int
    fewest_classes: int  # that a client has
    rarest_class: str
    holders: int  # clients that hold the rarest class
    within: float  # largest by smallest class that it has, of the median client
    between: float  # largest by smallest class of all clients together
    samples_least: int  # to train on, at a client
    samples_median: float
    samples_most: int
    tests_median: float  # own test samples
    trained: int  # clients, for one round
    start: str  # the model that they began with
    loss_most: float
    moved: float | None  # missing by observed proxies, mean over clients
    together: float | None
    accuracy: float
    download: float
    download_own: float
    run: dict[str, Any] | None = None  # of the run that was looked at

    @property
    def drop(self) -> float:
        """What a client's accuracy on its own samples loses with the next download."""
        return self.accuracy - self.download


def spread(federation: Federation) -> list[int]:
    """Some clients, from the one that misses the fewest classes to the one that misses the most."""
    missing = (~federation.observed).sum(1).tolist()
    order = sorted(range(len(federation)), key=lambda number: (missing[number], number))
    count = min(MOST_TRAINED, len(order))
    places = [place * (len(order) - 1) // max(count - 1, 1) for place in range(count)]
    return [order[place] for place in places]


def local_rounds(setup: Setup, start: Tensor, round: int) -> list[Trained]:
    """One round of FedAvg on some clients, from this model."""
    down: Values = {"model": start}
    with setup.in_force():
        replies = [do(setup, "train", round, k, down, {}) for k in spread_of(setup)]
        average = aggregated(setup, round, down, uploads(setup, replies))["model"]
        model = Model(setup.build())
        before = proxies(model, start)
        found = []
        for reply in replies:
            client = setup.client(reply.key, round)
            moves = proxies(model, reply.up["model"]) - before
            asked = tested(client, model.load(average).net)[0]
            found.append(
                Trained(
                    reply.key,
                    reply.numbers["loss"],
                    *distances(moves, client.observed),
                    reply.numbers["accuracy"],
                    asked["accuracy"],
                    asked["accuracy_observed"],
                )
            )
    return found


def spread_of(setup: Setup) -> list[int]:
    """The clients to train, of a setup that has everybody's samples."""
    assert isinstance(setup.federation, Federation)
    return spread(setup.federation)


def proxies(model: Model, vector: Tensor) -> Tensor:
    """One row for each class."""
    return model.load(vector).net.classifier.weight.detach().clone()


def distances(moves: Tensor, observed: Tensor) -> tuple[float, float | None, float | None]:
    """How far proxies of observed and of missing classes moved, and how much the moves of missing
    ones point the same way."""
    lengths, missing = moves.norm(dim=1), moves[~observed]
    own = float(lengths[observed].mean()) if observed.any() else 0.0
    if not len(missing):
        return own, None, None
    return own, float(lengths[~observed].mean()), together(missing)


def together(moves: Tensor) -> float | None:
    """Mean cosine between two different rows; None where there is one row only."""
    count = len(moves)
    if count < 2:
        return None
    unit = torch.nn.functional.normalize(moves, dim=1)
    return float(((unit @ unit.T).sum() - (unit * unit).sum()) / (count * (count - 1)))


def ratio(one: Trained) -> float | None:
    """How far missing proxies moved beside observed ones, which a frozen classifier's do not."""
    return None if one.missing is None or not one.observed else one.missing / one.observed


def mean_of(values: list[float | None]) -> float | None:
    """Over those that are known."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def numbers_of(
    federation: Federation, trained: list[Trained], start: str, run: dict[str, Any] | None
) -> Numbers:
    """Everything together."""
    counts, missing = federation.counts, (~federation.observed).sum(1)
    holders, total = federation.observed.sum(0), counts.sum(0)
    ratios = [float(row[row > 0].max() / row[row > 0].min()) for row in counts]
    return Numbers(
        clients=len(federation),
        classes=federation.classes,
        clients_that_miss=int((missing > 0).sum()),
        observed_from=federation.dataset.observed_from,
        missing_mean=float(missing.float().mean()),
        missing_most=int(missing.max()),
        fewest_classes=federation.classes - int(missing.max()),
        rarest_class=federation.dataset.classes[int(holders.argmin())],
        holders=int(holders.min()),
        within=median(ratios),
        between=float(total.max() / total[total > 0].min()),
        samples_least=min(federation.sizes),
        samples_median=median(federation.sizes),
        samples_most=max(federation.sizes),
        tests_median=median(len(index) for index in federation.test),
        trained=len(trained),
        start=start,
        loss_most=max(one.loss for one in trained),
        moved=mean_of([ratio(one) for one in trained]),
        together=mean_of([one.together for one in trained]),
        accuracy=mean(one.accuracy for one in trained),
        download=mean(one.download for one in trained),
        download_own=mean(one.download_own for one in trained),
        run=run,
    )
