"""What clients gain, on numbers made by hand."""

import pytest

from fedmap.report.clients import Served, by_client, over_seeds, sentences


def client(method: str, name: str, alone: float | None, own: float | None, seed: int = 0) -> Served:
    """Accuracies of its own model alone and with the method."""
    return Served(method, name, seed, alone, None, own, None)


def test_a_line_is_one_client_with_the_gain_of_each_method_in_brackets() -> None:
    table = by_client(
        [
            client("fedavg", "oslo", 0.847, 0.893),
            client("fedavg", "molde", 0.5, 0.25),
            client("map", "oslo", 0.847, 0.847),
            client("map", "molde", 0.5, None),
        ]
    )
    assert table.head == ["client", "local", "fedavg", "map"]
    assert table.lines == [
        ["oslo", "84.7", "89.3 (+4.6)", "84.7 (+0.0)"],
        ["molde", "50.0", "25.0 (-25.0)", "-"],
    ]


def test_without_training_alone_there_are_accuracies_and_no_gains() -> None:
    table = by_client([client("map", "oslo", None, 0.5)])
    assert (table.head, table.lines) == (["client", "map"], [["oslo", "50.0"]])


def test_a_client_over_seeds_has_its_means() -> None:
    runs = [client("map", "oslo", 0.5, 0.6, seed=0), client("map", "oslo", 0.7, 0.9, seed=1)]
    (one,) = over_seeds(runs)
    assert (one.local, one.personal, one.gain) == pytest.approx((0.6, 0.75, 0.15))
    assert one.seed is None


def test_a_mean_over_seeds_is_not_known_where_one_of_them_is_not() -> None:
    runs = [client("map", "oslo", None, 0.6, seed=0), client("map", "oslo", 0.7, 0.9, seed=1)]
    (one,) = over_seeds(runs)
    assert (one.local, one.gain) == (None, None)


def with_gains(method: str, *gains: float) -> list[Served]:
    return [client(method, f"site {k}", 0.5, 0.5 + gain) for k, gain in enumerate(gains)]


@pytest.mark.parametrize(
    ("gains", "says"),
    [
        ((0.5, -0.25, 0), "1 of 3 clients gains over training alone, 1 loses; +8.3 points"),
        ((0.25, 0.25, 0.25), "3 of 3 clients gain over training alone, 0 lose; +25.0 points"),
        ((-0.25, -0.25), "0 of 2 clients gain over training alone, 2 lose; -25.0 points"),
        ((0.25,), "1 of 1 client gains over training alone, 0 lose; +25.0 points"),
    ],
)
def test_one_client_gains_and_two_gain(gains: tuple[float, ...], says: str) -> None:
    assert sentences(with_gains("map", *gains), []) == [f"map: {says} in the mean over all"]


def test_the_method_with_the_most_gain_is_named_among_those_that_keep_the_rule() -> None:
    clients = [
        *with_gains("fedavg", 0.1, 0.1),
        *with_gains("map", 0.3, 0.1),
        *with_gains("central", 0.4, 0.4),
    ]
    best, rule = sentences(clients, ["central"])[3:]
    assert best == ("map has the most gain over training alone: +20.0 points in the mean over all")
    assert rule.startswith("central has all samples in one place")


def test_methods_with_the_same_gain_are_both_named() -> None:
    clients = [*with_gains("fedavg", 0.1), *with_gains("map", 0.1)]
    assert sentences(clients, [])[-1].startswith("fedavg and map have the most gain")


def test_where_nothing_helps_it_is_said() -> None:
    clients = [*with_gains("fedavg", -0.1), *with_gains("map", 0.1, -0.1)]
    assert sentences(clients, [])[-1] == (
        "no method is better than training alone, in the mean over all clients"
    )
