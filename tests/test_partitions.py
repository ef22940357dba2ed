"""Who gets which sample: rules that hold for every partition, and each one's own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedmap
from fedmap.data import Dataset, synthetic
from fedmap.errors import FedmapError
from fedmap.federation import Federation, partition
from fedmap.partitions import (
    PARTITIONS,
    Ints,
    Labels,
    NaturalParams,
    Partition,
    SizedParams,
    at_least_two_each,
    draw_owners,
    proportional,
)
from fedmap.simulate.settings import Settings, read_toml

EVERY = sorted(set(PARTITIONS) - {"classes"})  # which draws what a table says: see below
SIZED = [name for name in EVERY if issubclass(PARTITIONS[name].params, SizedParams)]
few = settings(max_examples=15)
many = settings(max_examples=60)
seeds = st.integers(0, 2**32)


def balanced(classes: int, clients: int, samples: int) -> Labels:
    """Equally many samples of each class, and owners for the partition that asks for them."""
    return Labels(np.arange(samples) % classes, classes, clients, np.arange(samples) * 7 % clients)


@st.composite
def small(draw: st.DrawFn, samples_per_client: int | None = None) -> Labels:
    """Few samples of skewed classes for some clients, each of which owns at least two."""
    classes = draw(st.integers(1, 8))
    clients = draw(st.integers(-(-classes // 2), 12))
    samples = clients * (samples_per_client or 2)
    if samples_per_client is None:
        samples += draw(st.integers(0, 150))
    rng = np.random.default_rng(draw(seeds))
    labels = rng.choice(classes, size=samples, p=rng.dirichlet(np.ones(classes)))
    return Labels(labels, classes, clients, rng.permutation(np.arange(samples) % clients))


def owners(name: str, labels: Labels, seed: int = 0, **params: Any) -> Ints:
    if name == "shards":  # as many as there are, where there are fewer than the default of two
        params = {"classes_per_client": min(2, labels.classes)} | params
    return draw_owners(name, labels, PARTITIONS[name].params(**params), np.random.default_rng(seed))


def table(name: str, labels: Labels, seed: int = 0, **params: Any) -> Ints:
    """(clients, classes): how many samples of each class does each client hold?"""
    cells = owners(name, labels, seed, **params) * labels.classes + labels.labels
    return np.bincount(cells, minlength=labels.clients * labels.classes).reshape(
        labels.clients, labels.classes
    )


# Every partition.


@pytest.mark.parametrize("name", EVERY)
@many
@given(labels=small(), seed=seeds)
def test_every_sample_has_one_owner_and_every_client_two_samples(
    name: str, labels: Labels, seed: int
) -> None:
    owner = owners(name, labels, seed)
    assert owner.shape == labels.labels.shape
    assert owner.min() >= 0
    sizes = np.bincount(owner, minlength=labels.clients)
    assert len(sizes) == labels.clients
    assert sizes.min() >= 2


@pytest.mark.parametrize("name", EVERY)
@few
@given(labels=small(samples_per_client=2), seed=seeds)
def test_when_samples_are_scarce_everybody_gets_two(name: str, labels: Labels, seed: int) -> None:
    assert np.bincount(owners(name, labels, seed)).tolist() == [2] * labels.clients


@pytest.mark.parametrize("name", EVERY)
@few
@given(labels=small(), seed=seeds)
def test_the_same_seed_gives_the_same_owners(name: str, labels: Labels, seed: int) -> None:
    assert np.array_equal(owners(name, labels, seed), owners(name, labels, seed))


@pytest.mark.parametrize("name", [name for name in EVERY if name != "natural"])
@few
@given(seed=seeds)
def test_another_seed_gives_other_owners(name: str, seed: int) -> None:
    labels = balanced(5, 10, 300)
    assert not np.array_equal(owners(name, labels, seed), owners(name, labels, seed + 1))


@pytest.mark.parametrize("name", [name for name in EVERY if name != "natural"])
def test_which_samples_of_a_class_a_client_gets_is_drawn(name: str) -> None:
    labels = balanced(3, 9, 900)
    of_class_0 = owners(name, labels)[labels.labels == 0]
    assert (np.diff(of_class_0) < 0).sum() > 50  # in order of the samples it would be never


@pytest.mark.parametrize("name", EVERY)
def test_the_labels_stay_as_they_are(name: str) -> None:
    labels = balanced(4, 6, 60)
    owners(name, labels)
    assert np.array_equal(labels.labels, balanced(4, 6, 60).labels)


@pytest.mark.parametrize("name", EVERY)
def test_one_client_gets_everything(name: str) -> None:
    labels = balanced(2, 1, 40)
    assert not owners(name, labels).any()


@pytest.mark.parametrize("name", SIZED)
def test_size_sigma_spreads_the_clients_sizes_log_normally(name: str) -> None:
    labels = balanced(10, 300, 60_000)
    equal, skewed = (
        np.log(table(name, labels, size_sigma=sigma).sum(1)).std() for sigma in (0.0, 0.5)
    )
    assert equal < 0.1
    assert 0.4 < skewed < 0.6


# The paper's scene.


@few
@given(seed=seeds)
def test_incomplete_clients_are_nearly_balanced_over_two_to_all_classes(seed: int) -> None:
    counts = table("incomplete", balanced(10, 100, 60_000), seed)
    held = (counts > 0).sum(1)
    assert held.min() >= 2
    assert held.max() <= 10
    assert (counts.max(1) / (counts.sum(1) / held)).max() < 2


def test_incomplete_draws_the_number_of_classes_uniformly_and_the_classes_too() -> None:
    counts = table("incomplete", balanced(10, 900, 180_000))
    held = (counts > 0).sum(1)
    clients_with = np.bincount(held, minlength=11)
    assert clients_with[:2].tolist() == [0, 0]
    # 100 expected, with a standard deviation of 9.4
    assert 60 < clients_with[2:].min() <= clients_with[2:].max() < 140
    assert ((counts > 0).mean(0) > 0.53).all()  # 0.6 expected, with a standard deviation of 0.016
    assert ((counts > 0).mean(0) < 0.67).all()


def test_incomplete_clients_of_few_classes_are_as_large_as_those_of_many() -> None:
    counts = table("incomplete", balanced(10, 300, 60_000))
    held, sizes = (counts > 0).sum(1), counts.sum(1)
    assert sizes[held <= 3].mean() == pytest.approx(sizes[held >= 8].mean(), rel=0.1)


@few
@given(seed=seeds)
def test_incomplete_leaves_no_class_without_a_client_however_few_there_are(seed: int) -> None:
    # two clients miss a class in common with near certainty
    counts = table("incomplete", balanced(40, 2, 4_000), seed)
    assert (counts.sum(0) == 100).all()


# Skewed, but complete classes.


@pytest.mark.parametrize("alpha", [0.1, 0.5, 5.0])
def test_dirichlet_clients_have_the_shares_that_alpha_makes_one_expect(alpha: float) -> None:
    counts = table("dirichlet", balanced(10, 200, 100_000), alpha=alpha)
    shares = counts / counts.sum(1, keepdims=True)
    expected = (alpha + 1) / (alpha * 10 + 1)  # E sum p^2 under Dir(alpha)
    assert (shares**2).sum(1).mean() == pytest.approx(expected, rel=0.1)


def test_dirichlet_survives_shares_so_small_that_nobody_wishes_for_a_class() -> None:
    for seed in range(30):
        assert table("dirichlet", balanced(50, 2, 500), seed, alpha=0.001).sum() == 500


# Shards.


@few
@given(classes=st.integers(1, 12), each=st.integers(1, 12), more=st.integers(0, 20), seed=seeds)
def test_shards_give_each_client_its_number_of_classes_and_each_class_as_many_clients(
    classes: int, each: int, more: int, seed: int
) -> None:
    each = min(each, classes)
    clients = -(-classes // each) + more
    counts = table(
        "shards", balanced(classes, clients, 2 * clients * classes), seed, classes_per_client=each
    )
    assert ((counts > 0).sum(1) == each).all()
    holders = (counts > 0).sum(0)
    assert holders.min() >= 1
    assert holders.max() - holders.min() <= 1


def test_shards_do_not_give_neighbors_the_same_classes_each_time() -> None:
    held = {tuple(np.flatnonzero(row)) for row in table("shards", balanced(10, 100, 4_000)) > 0}
    assert len(held) > 20  # of 45 pairs


@pytest.mark.parametrize(("each", "clients"), [(1, 9), (11, 100), (4, 2)])
def test_shards_that_cannot_be_say_what_can(each: int, clients: int) -> None:
    least = -(-10 // clients)
    with pytest.raises(
        FedmapError,
        match=f"partition shards: classes_per_client is {each}; {least} to 10 are possible",
    ):
        owners("shards", balanced(10, clients, 1_000), classes_per_client=each)


# Vacant classes.


@few
@given(clients=st.integers(1, 30), each=st.integers(1, 6), more=st.integers(0, 50), seed=seeds)
def test_vacant_clients_have_shards_of_the_samples_sorted_by_class(
    clients: int, each: int, more: int, seed: int
) -> None:
    given = balanced(7, clients, max(each, 2) * clients + more)
    owner = owners("vacant", given, seed, shards_per_client=each)
    samples = len(given.labels)
    # By hand: the bounds of the shards, and of each class in the sorted samples.
    least, longer = divmod(samples, each * clients)
    ends = np.cumsum([least + 1] * longer + [least] * (each * clients - longer))
    counts = np.zeros((len(ends), 7), int)
    for place, label in enumerate(np.sort(given.labels)):
        counts[np.searchsorted(ends, place, side="right"), label] += 1
    # Each class has as many samples of each client as this client's shards have.
    found = np.bincount(owner * 7 + given.labels, minlength=7 * clients).reshape(clients, 7)
    assert found.sum(0).tolist() == counts.sum(0).tolist()
    assert found.sum(1).min() >= each * least
    assert found.sum(1).max() <= each * (least + 1)
    assert (found > 0).sum() <= (counts > 0).sum()


def test_two_shards_leave_a_client_two_classes_at_most_where_shards_fit_into_classes() -> None:
    counts = table("vacant", balanced(10, 100, 60_000))
    held = (counts > 0).sum(1)
    assert set(held) == {1, 2}
    assert set(counts.sum(1)) == {600}
    # 2 of 200 shards of 10 classes with 20 each: the same class with probability 19/199
    assert 0 < (held == 1).sum() < 30


def test_more_shards_than_samples_are_refused_with_the_most_that_are_possible() -> None:
    with pytest.raises(
        FedmapError, match=r"shards_per_client is 6; at most 5 are possible with 50 .* 10 clients"
    ):
        owners("vacant", balanced(5, 10, 50), shards_per_client=6)
    assert np.bincount(owners("vacant", balanced(5, 10, 50), shards_per_client=5)).min() == 5


# By a table.

Written = Callable[[str], Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """A table in a file."""

    def write(rows: str) -> Path:
        path = tmp_path / "classes.csv"
        path.write_text(f"client,class\n{rows}")
        return path

    return write


def named(names: tuple[str, ...] = ("ant", "bee", "cat", "dog")) -> Dataset:
    """Forty vectors of four classes with these names."""
    return replace(synthetic(classes=4, train=40, test=8, shape=(3,)), classes=names)


TABLE = "0,ant\n0,bee\n1,2\n1,bee\n2,dog\n"


@many
@given(
    holds=st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=6).filter(
        lambda holds: set().union(*holds) == set(range(5))
    ),
    seed=seeds,
)
def test_each_client_has_the_classes_of_the_table_and_no_others(
    holds: list[set[int]], seed: int
) -> None:
    rows = [f"{client},{c}" for client, classes in enumerate(holds) for c in classes]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "classes.csv"
        path.write_text("\n".join(["client,class", *rows[::-1]]))
        counts = table("classes", balanced(5, len(holds), 200), seed, file=str(path))
    assert [set(np.flatnonzero(row)) for row in counts] == holds
    for c in range(5):  # evenly
        shares = counts[counts[:, c] > 0, c]
        assert shares.max() - shares.min() <= 1


def test_classes_are_given_by_name_or_number_and_the_table_says_how_many_clients(
    written: Written,
) -> None:
    found = partition(named(), kind="classes", file=str(written(TABLE)))
    held = [set(row.nonzero().flatten().tolist()) for row in found.observed]
    assert held == [{0, 1}, {1, 2}, {3}]


def test_a_name_that_is_a_number_is_a_name(written: Written) -> None:
    file = str(written("0,3\n0,2\n1,1\n1,0\n"))
    found = partition(named(("3", "2", "1", "0")), kind="classes", file=file)
    assert found.observed[0].tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            "0,ant\n0,bee\n1,cow\n",
            "row 4: there is no class 'cow'; .*there are: ant, bee, cat, dog",
        ),
        ("0,ant\n0,bee\n1,4\n", r"row 4: there is no class '4'; .*number from 0 to 3\)"),
        ("0,ant\n0,bee\n0,-1\n", "row 4: there is no class '-1'"),
        ("0,ant\n0,bee\n1,cat\n", "class 'dog' is nobody's: give it to a client"),
        ("0,ant\n0,bee\n2,cat\n2,dog\n", "client 1 has no class; clients are numbered from 0"),
        ("1,ant\n1,bee\n1,cat\n1,dog\n", "client 0 has no class"),
        ("999999999,ant\n", "client 0 has no class"),
        ("0,ant\noslo,bee\n", "row 3 has the client 'oslo'; whole numbers from 0 are allowed"),
        ("0,ant\n-1,bee\n", "row 3 has the client '-1'"),
        ("0,ant\n0,\n", "row 3 has no value in column class"),
        ("0,ant\n,bee\n", "row 3 has no value in column client"),
        ("0,ant,1\n", "row 2 has 3 values, but there are 2 columns"),
        ("", "there is no row below its header"),
    ],
)
def test_a_table_that_cannot_be_is_refused_with_its_file_and_what_is_wrong(
    written: Written, rows: str, sentence: str
) -> None:
    with pytest.raises(FedmapError, match=f"classes.csv: {sentence}"):
        partition(named(), kind="classes", file=str(written(rows)))


def test_too_few_samples_for_what_the_table_says_are_refused(written: Written) -> None:
    rows = "".join(f"{client},{c}\n" for client in range(11) for c in ("ant", "bee", "cat", "dog"))
    with pytest.raises(FedmapError, match="class 'ant' has too few samples for the clients that"):
        partition(named(), kind="classes", file=str(written(rows)))


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({}, "partition classes needs a table: --partition-param file=FILE.csv"),
        ({"file": "nowhere.csv"}, "nowhere.csv: cannot be read"),
        ({"file": "."}, "cannot be read"),
        ({"file": "classes.csv", "rows": 3}, "partition classes has no parameter 'rows'"),
    ],
)
def test_without_a_table_there_is_no_such_partition(
    params: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedmapError, match=sentence):
        partition(named(), kind="classes", **params)


def test_a_table_without_a_column_of_classes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("client,label\n0,ant\n")
    with pytest.raises(FedmapError, match="there is no column 'class'; there are: client, label"):
        partition(named(), kind="classes", file=str(tmp_path / "a.csv"))


def test_another_number_of_clients_than_the_tables_is_refused(written: Written) -> None:
    with pytest.raises(FedmapError, match=r"clients is 4, but .*classes.csv has 3; leave clients"):
        partition(named(), 4, kind="classes", file=str(written(TABLE)))


def test_the_way_back_to_a_federation_has_the_tables_whole_path_and_checksum(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(TABLE)
    monkeypatch.chdir(path.parent)
    params = partition(named(), kind="classes", file="classes.csv").origin["partition_params"]
    assert params["file"] == str(path)
    again = partition(named(), kind="classes", **params)
    assert again.origin["partition_params"] == params
    path.write_text(f"client,class\n{TABLE}2,ant\n")
    with pytest.raises(FedmapError, match=r"classes.csv has changed \(checksum"):
        partition(named(), kind="classes", **params)


def test_a_run_by_a_table_is_repeated_by_its_run_toml_or_refused(
    written: Written, tmp_path: Path
) -> None:
    rows = "".join(f"{number % 3},{number}\n" for number in range(10))
    params = {"file": str(written(rows))}
    given = {"data": "synthetic", "partition": "classes", "partition_params": params}
    federation = Settings.of(given | {"samples": 400}).federation()
    run = fedmap.run("fedavg", federation, out=tmp_path / "run", net="mlp", rounds=1, epochs=0.1)
    kept = Settings.of(read_toml(run.folder / "run.toml"))
    assert kept.federation().marks == federation.marks
    written(f"{rows}0,1\n")
    with pytest.raises(FedmapError, match="has changed"):
        kept.federation()


def test_own_data_is_divided_by_a_table(written: Written) -> None:
    rng = np.random.default_rng(0)
    pairs = {name: (rng.random((20, 3)), ["ant", "bee"] * 10) for name in ("oslo", "bergen")}
    dataset = Federation.from_arrays(pairs).dataset
    found = partition(dataset, kind="classes", file=str(written("0,ant\n1,bee\n2,ant\n2,bee\n")))
    assert len(found) == 3
    assert found.observed.tolist() == [[True, False], [False, True], [True, True]]


# Without any skew.


def test_iid_clients_differ_by_one_sample_at_most_and_have_all_classes_alike() -> None:
    counts = table("iid", balanced(5, 7, 20_000))
    assert set(counts.sum(1)) == {2857, 2858}
    # five standard deviations
    assert np.abs(counts / counts.sum(1, keepdims=True) - 0.2).max() < 0.04
    assert len(np.unique(counts)) > 10  # drawn, not dealt out class by class


# By owner.


@few
@given(labels=small(), seed=seeds)
def test_natural_leaves_every_sample_with_its_owner(labels: Labels, seed: int) -> None:
    assert labels.owner is not None
    assert np.array_equal(owners("natural", labels, seed), labels.owner)


def test_natural_needs_owners() -> None:
    with pytest.raises(
        FedmapError,
        match="partition natural: the samples come without owners; "
        "choose one of classes, dirichlet, iid, incomplete, shards, vacant",
    ):
        owners("natural", balanced(3, 4, 50)._replace(owner=None))


@pytest.mark.parametrize("clients", [1, 3, 5])
def test_natural_has_the_datas_own_number_of_clients(clients: int) -> None:
    with pytest.raises(
        FedmapError,
        match=f"clients is {clients}, but the samples come with 4 owners; leave clients out",
    ):
        owners("natural", balanced(3, 4, 50)._replace(clients=clients))


# What all are built from.


@many
@given(
    wish=st.lists(st.floats(0, 1e6), min_size=1, max_size=40).filter(lambda wish: sum(wish) > 1e-3),
    total=st.integers(0, 10_000),
)
def test_whole_numbers_in_proportion_sum_to_the_total_and_are_off_by_less_than_one(
    wish: list[float], total: int
) -> None:
    counts = proportional(np.array(wish), total)
    assert counts.sum() == total
    assert np.abs(counts - np.array(wish) / sum(wish) * total).max() < 1 + 1e-6
    assert not counts[np.array(wish) == 0].any()


def test_a_poor_client_gets_samples_that_it_wished_for_from_the_largest_that_has_them() -> None:
    counts = np.array([[9, 0, 0], [4, 1, 1], [3, 1, 1], [0, 0, 0]])
    wish = np.array([[1.0, 0, 0], [1, 1, 1], [1, 1, 1], [0, 1, 1]])
    at_least_two_each(counts, wish, np.random.default_rng(0))
    assert counts[0].tolist() == [9, 0, 0]  # the largest, but without a class that is wished for
    assert counts[3].sum() == 2
    assert counts[3, 0] == 0
    assert counts.sum(0).tolist() == [16, 2, 2]
    assert counts[1].sum() < 6


def test_a_poor_client_gets_any_class_where_none_that_it_wished_for_can_be_spared() -> None:
    counts = np.array([[6, 0], [0, 2], [0, 1]])
    at_least_two_each(counts, np.array([[1.0, 0], [0, 1], [0, 1]]), np.random.default_rng(0))
    assert counts.tolist() == [[5, 0], [0, 2], [1, 1]]


def test_no_client_becomes_poor_by_giving() -> None:
    counts = np.array([[3], [3], [0], [2]])
    at_least_two_each(counts, np.ones((4, 1)), np.random.default_rng(0))
    assert counts.tolist() == [[2], [2], [2], [2]]


# Errors.


@pytest.mark.parametrize("clients", [0, -3])
@pytest.mark.parametrize("name", EVERY)
def test_a_federation_without_clients_is_refused(name: str, clients: int) -> None:
    with pytest.raises(FedmapError, match=f"clients is {clients}; at least 1 is needed"):
        owners(name, balanced(2, 1, 50)._replace(clients=clients))


@pytest.mark.parametrize("name", SIZED)
def test_more_clients_than_samples_allow_are_refused_with_the_most_that_they_do(name: str) -> None:
    with pytest.raises(
        FedmapError,
        match=r"51 training samples cannot give 26 clients two each .*; at most 25 clients are",
    ):
        owners(name, balanced(2, 26, 51))


@pytest.mark.parametrize(
    "drawn", [np.zeros(9, np.int64), np.arange(10) % 2, np.arange(10) % 4, np.arange(10) % 3 - 1]
)
def test_a_users_own_partition_must_give_every_sample_away_and_every_client_some(
    drawn: Ints,
) -> None:
    mine = Partition(NaturalParams, lambda labels, params, rng: drawn)
    with (
        PARTITIONS.lent("mine", mine),
        pytest.raises(
            FedmapError,
            match="partition mine must give each of the 10 samples to one of the clients 0 to 2",
        ),
    ):
        owners("mine", balanced(2, 3, 10))


def test_each_partition_has_one_line_that_says_what_it_is() -> None:
    assert all(partition.line.endswith(".") for _, partition in PARTITIONS.items())
