"""The numbers of a diagnosis beside a real round of FedAvg and a few lines of plain torch."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedmap
from fedmap.diagnosis.numbers import MOST_TRAINED, distances, spread, together
from fedmap.federation import Federation
from fedmap.nets import build
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup

SMALL: dict[str, Any] = {"net": "tiny", "epochs": 1.0, "batch": 8, "lr": 0.05}


@pytest.fixture(scope="module")
def diagnosis(federation: Federation) -> fedmap.Diagnosis:
    return fedmap.inspect(federation, **SMALL)


def test_the_accuracies_are_those_of_a_round_of_fedavg(
    federation: Federation, diagnosis: fedmap.Diagnosis
) -> None:
    result = fedmap.run("fedavg", federation, rounds=1, fraction=1, **SMALL)
    accuracies = {one["client"]: one["accuracy"] for one in result.rounds[0]["clients"]}
    assert {one.client: one.accuracy for one in diagnosis.trained} == accuracies
    per_client = result.final["global_accuracy_per_client"]
    assert [one.download for one in diagnosis.trained] == [
        per_client[one.client] for one in diagnosis.trained
    ]


def test_proxies_move_as_far_as_plain_sgd_moves_them(
    federation: Federation, diagnosis: fedmap.Diagnosis
) -> None:
    settings = Settings.of({"data": "synthetic", "method": "fedavg", **SMALL})
    for one in diagnosis.trained:
        client = Setup(settings, federation).client(one.client, 1)
        net = build("tiny", (6,), 4, 0)
        before = net.classifier.weight.detach().clone()
        sgd = torch.optim.SGD(net.parameters(), 0.05, 0.9, weight_decay=1e-5)
        for x, y in client.batches(client.steps):
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            sgd.step()
        far = (net.classifier.weight.detach() - before).norm(dim=1)
        seen = federation.counts[one.client] > 0
        assert one.observed == pytest.approx(float(far[seen].mean()), rel=1e-4)
        if not seen.all():
            assert one.missing == pytest.approx(float(far[~seen].mean()), rel=1e-4)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(
    federation: Federation, diagnosis: fedmap.Diagnosis
) -> None:
    assert fedmap.inspect(federation, **SMALL).numbers == diagnosis.numbers
    assert fedmap.inspect(federation, **SMALL, seed=1).numbers != diagnosis.numbers


def test_labels_are_counted(federation: Federation, diagnosis: fedmap.Diagnosis) -> None:
    held = [set(federation.dataset.train_y[index].tolist()) for index in federation.train]
    numbers = diagnosis.numbers
    assert numbers.missing_mean == pytest.approx(4 - sum(map(len, held)) / 6)
    assert numbers.missing_most == 4 - min(map(len, held))
    assert numbers.clients_that_miss == sum(len(classes) < 4 for classes in held)
    holders = [sum(c in classes for classes in held) for c in range(4)]
    assert numbers.holders == min(holders)
    rarest = federation.dataset.classes.index(numbers.rarest_class)
    assert holders[rarest] == min(holders)


def test_without_missing_classes_nothing_is_pushed() -> None:
    even = fedmap.partition(fedmap.load("synthetic"), 3, kind="iid")
    numbers = fedmap.inspect(even, **SMALL).numbers
    assert numbers.moved is None
    assert numbers.together is None
    assert numbers.clients_that_miss == 0


def test_distances_are_means_over_observed_and_over_missing_classes() -> None:
    moves = torch.tensor([[3.0, 4.0], [0.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
    found = distances(moves, torch.tensor([True, False, False, False]))
    # lengths 5 | 1, 3, 1; cosines of the three pairs: 1, 0, 0
    assert found == pytest.approx((5.0, 5 / 3, 1 / 3))


def test_one_missing_class_has_no_other_to_move_with() -> None:
    assert together(torch.ones(1, 3)) is None


@given(st.integers(1, 40))
def test_some_clients_are_spread_from_the_fewest_missing_classes_to_the_most(count: int) -> None:
    class Some:
        """As much of a federation as is asked for."""

        observed = torch.arange(count)[:, None] % 5 < torch.arange(5)

        def __len__(self) -> int:
            return count

    chosen = spread(Some())  # type: ignore[arg-type]
    missing = (~Some.observed).sum(1)
    assert len(set(chosen)) == len(chosen) == min(count, MOST_TRAINED)
    assert missing[chosen].tolist() == sorted(missing[chosen].tolist())
    assert missing[chosen[0]] == missing.min()
    assert len(chosen) == 1 or missing[chosen[-1]] == missing.max()
