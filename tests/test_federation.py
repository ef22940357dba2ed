"""Clients' training and test samples, their class counts, and the global test set."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmap.data import Dataset, Defaults, synthetic
from fedmap.errors import FedmapError
from fedmap.federation import Federation, partition
from fedmap.partitions import PARTITIONS


def dataset(
    samples: int = 200,
    classes: int = 4,
    owner: list[int] | None = None,
    names: tuple[str, ...] = (),
    test: int = 40,
) -> Dataset:
    drawn = synthetic(classes=classes, train=samples, test=test, shape=(3,))
    return replace(
        drawn,
        owner=None if owner is None else torch.tensor(owner),
        client_names=names,
        defaults=Defaults(clients=7),
    )


def same(one: Federation, other: Federation) -> bool:
    return len(one) == len(other) and all(
        map(torch.equal, (*one.train, *one.test), (*other.train, *other.test))
    )


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(2, 40), min_size=1, max_size=12), seed=st.integers(0, 2**32))
def test_every_sample_is_once_in_a_training_or_a_test_set_and_a_fifth_of_each_clients_is_test(
    sizes: list[int], seed: int
) -> None:
    owner = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    data = dataset(sum(sizes))
    drawn = Federation(data, owner, seed=seed)
    assert sorted(torch.cat([*drawn.train, *drawn.test]).tolist()) == list(range(sum(sizes)))
    for k, size in enumerate(sizes):
        train, test = drawn.train[k], drawn.test[k]
        assert len(test) == max(int(0.2 * size), 1)
        assert len(train) == size - len(test) > 0
        assert (owner[train] == k).all()
        assert (owner[test] == k).all()
        assert drawn.counts[k].tolist() == [int((data.train_y[train] == c).sum()) for c in range(4)]


def test_data_of_one_class_is_refused() -> None:
    with pytest.raises(
        FedmapError, match="all samples are of class 'class 0'; at least two classes"
    ):
        Federation(dataset(classes=1), np.arange(200) % 4)


def needed(kind: str, folder: Path) -> dict[str, Any]:
    """The parameters that a partition cannot do without: a table in which 7 clients have all
    classes."""
    if kind != "classes":
        return {}
    rows = [f"{client},{c}" for client in range(7) for c in range(4)]
    (folder / "classes.csv").write_text("\n".join(["client,class", *rows]))
    return {"file": str(folder / "classes.csv")}


@pytest.mark.parametrize("kind", sorted(PARTITIONS))
def test_every_partition_makes_a_federation_that_its_record_leads_back_to(
    kind: str, tmp_path: Path
) -> None:
    data, params = dataset(owner=[k % 7 for k in range(200)]), needed(kind, tmp_path)
    drawn = partition(data, kind=kind, seed=5, **params)
    assert len(drawn) == 7
    again = drawn.origin
    assert again["data"] == data.name
    assert same(
        drawn,
        partition(
            data,
            again["clients"],
            seed=again["partition_seed"],
            kind=again["partition"],
            **again["partition_params"],
        ),
    )
    assert not same(drawn, partition(data, kind=kind, seed=6, **params))


def test_which_fifth_is_test_is_drawn_by_the_seed() -> None:
    data, owner = dataset(), np.repeat(np.arange(2), 100)
    first, same_seed, other = (Federation(data, owner, seed=seed) for seed in (0, 0, 1))
    assert same(first, same_seed)
    assert not torch.equal(first.test[0], other.test[0])
    assert not torch.equal(first.test[0], torch.arange(20))


def test_the_datas_own_test_set_is_the_global_one() -> None:
    data = dataset()
    assert partition(data, 3).test_x is data.test_x
    assert partition(data, 3).test_y is data.test_y


def test_without_a_test_set_the_union_of_the_local_tests_is_the_global_one() -> None:
    data = dataset()
    drawn = partition(replace(data, test_x=data.test_x[:0], test_y=data.test_y[:0]), 3)
    union = torch.cat(drawn.test)
    assert torch.equal(drawn.test_x, data.train_x[union])
    assert torch.equal(drawn.test_y, data.train_y[union])


def test_a_class_is_observed_from_as_many_training_samples_as_the_dataset_says() -> None:
    data = dataset()
    counts = partition(data, 20).counts
    assert bool((counts == 1).any())
    assert torch.equal(partition(data, 20).observed, counts >= 1)
    assert torch.equal(partition(replace(data, observed_from=2), 20).observed, counts >= 2)


def test_one_clients_samples_travel_without_the_other_clients() -> None:
    drawn = partition(dataset(20_000), 100)
    assert len(pickle.dumps(drawn.train[0])) < 5_000


# What is chosen where nothing is said.


def test_samples_without_owners_make_the_papers_scene_with_the_datasets_number_of_clients() -> None:
    data = dataset()
    assert same(partition(data), partition(data, 7, kind="incomplete"))
    assert partition(data).origin["partition"] == "incomplete"


def test_samples_with_owners_stay_with_them() -> None:
    data = dataset(owner=[k // 50 for k in range(200)])
    drawn = partition(data)
    assert drawn.origin["partition"] == "natural"
    assert drawn.origin["clients"] == len(drawn) == 4
    assert sorted(torch.cat([drawn.train[1], drawn.test[1]]).tolist()) == list(range(50, 100))
    assert same(drawn, partition(data, 4))


def test_samples_with_owners_are_shared_out_anew_where_one_says_so() -> None:
    data = dataset(owner=[k // 50 for k in range(200)], names=("a", "b", "c", "d"))
    drawn = partition(data, kind="incomplete")
    assert len(drawn) == 7  # the dataset's default
    assert drawn.client_names == tuple(f"client {k}" for k in range(7))
    assert same(drawn, partition(replace(data, owner=None), kind="incomplete"))


def test_another_number_of_clients_than_of_owners_is_refused() -> None:
    with pytest.raises(
        FedmapError,
        match="clients is 3, but the samples come with 4 owners; leave clients out, or choose",
    ):
        partition(dataset(owner=[k // 50 for k in range(200)]), 3)


# Names.


def test_the_datas_own_client_and_class_names_survive() -> None:
    data = replace(
        dataset(owner=[k // 100 for k in range(200)], names=("north", "south")),
        classes=("a", "b", "c", "d"),
    )
    drawn = partition(data)
    assert drawn.client_names == ("north", "south")
    assert drawn.dataset.classes == ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("names", "owner_name"), [(("north", "south", "east"), "south"), ((), "client 1")]
)
def test_an_owner_with_a_single_sample_is_named(names: tuple[str, ...], owner_name: str) -> None:
    data = dataset(9, owner=[0, 0, 0, 0, 1, 2, 2, 2, 2], names=names)
    with pytest.raises(
        FedmapError,
        match=f"^{owner_name} has one sample; each client needs at least 2, one to train on",
    ):
        partition(data)


def test_a_client_without_any_sample_is_named() -> None:
    with pytest.raises(FedmapError, match=r"^client 1 has no sample; each client needs at least 2"):
        Federation(dataset(4), np.array([0, 0, 2, 2]))


@pytest.mark.parametrize("owner", [np.zeros(5, np.int64), np.zeros(0, np.int64)])
def test_owners_of_another_number_of_samples_are_refused(owner: np.ndarray) -> None:
    with pytest.raises(FedmapError, match=f"4 training samples but {len(owner)} owners"):
        Federation(dataset(4), owner)


# Classes that nobody has.


def test_a_class_that_no_owner_has_is_missing_for_all() -> None:
    data = replace(
        dataset(owner=[k // 100 for k in range(200)]),
        classes=("a", "b", "c", "d", "only in the test set"),
    )
    assert not partition(data).observed[:, 4].any()


@pytest.mark.parametrize("kind", [kind for kind in sorted(PARTITIONS) if kind != "natural"])
def test_a_class_without_samples_cannot_be_shared_out(kind: str, tmp_path: Path) -> None:
    data = replace(dataset(), classes=("a", "b", "c", "d", "ghost"))
    with pytest.raises(
        FedmapError, match="has no training sample of class 'ghost', so nobody could hold it"
    ):
        partition(data, kind=kind, **needed(kind, tmp_path))


# Wrong names and values.


@pytest.mark.parametrize(
    ("kind", "params", "sentence"),
    [
        (
            "dirichlet",
            {"alpha": 0},
            "partition dirichlet: alpha is 0; allowed: number from 0.001 up to 1000",
        ),
        (
            "dirichlet",
            {"alpha": float("nan")},
            "partition dirichlet: alpha is nan; allowed: number",
        ),
        (
            "incomplete",
            {"size_sigma": -1},
            "partition incomplete: size_sigma is -1; allowed: number from 0 up to 3",
        ),
        (
            "shards",
            {"classes_per_client": 0},
            "partition shards: classes_per_client is 0; allowed: whole number from 1",
        ),
        (
            "shards",
            {"classes_per_client": 2.5},
            "partition shards: classes_per_client is 2.5; allowed: whole number",
        ),
        ("iid", {"alpha": 1}, "partition iid has no parameter 'alpha'; there are: size_sigma"),
        ("natural", {"alpha": 1}, "partition natural has no parameter 'alpha'; it has none"),
        ("dirichlett", {}, "there is no partition 'dirichlett'; did you mean 'dirichlet'?"),
    ],
)
def test_a_wrong_name_or_value_gets_one_sentence(
    kind: str, params: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FedmapError) as wrong:
        partition(dataset(), 5, kind=kind, **params)
    assert str(wrong.value).startswith(sentence)


# One's own arrays.


def arrays(*labels: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    return [
        (np.random.default_rng(k).standard_normal((len(y), 3)).astype(np.float32), np.array(y))
        for k, y in enumerate(labels)
    ]


def test_arrays_make_one_client_a_pair() -> None:
    pairs = arrays([0, 1, 0, 1, 0], [2, 2, 1])
    drawn = Federation.from_arrays(pairs)
    assert drawn.client_names == ("client 0", "client 1")
    assert [len(part) for part in (*drawn.train, *drawn.test)] == [4, 2, 1, 1]
    mine = torch.cat([drawn.train[1], drawn.test[1]]).sort().values
    assert np.array_equal(drawn.dataset.train_x[mine], pairs[1][0])
    assert drawn.dataset.train_y[mine].tolist() == [2, 2, 1]
    assert len(drawn.test_y) == 2
    assert drawn.origin == {
        "data": "arrays",
        "partition": "natural",
        "partition_params": {},
        "clients": 2,
        "partition_seed": 0,
    }


def test_arrays_keep_the_names_of_clients_and_classes_and_the_test_set() -> None:
    first, second, test = arrays([0, 1, 0], [1, 1], [0, 2])
    drawn = Federation.from_arrays(
        {"north": first, "south": second}, test, classes=["cat", "dog", "owl"]
    )
    assert drawn.client_names == ("north", "south")
    assert drawn.dataset.classes == ("cat", "dog", "owl")
    assert np.array_equal(drawn.test_x, test[0])
    assert not drawn.observed[:, 2].any()


def test_arrays_may_be_tensors() -> None:
    pairs = arrays([0, 1, 0], [1, 1])
    assert same(
        Federation.from_arrays(pairs),
        Federation.from_arrays([(torch.tensor(x), torch.tensor(y)) for x, y in pairs]),
    )


def test_arrays_of_a_client_with_one_sample_are_refused_by_its_name() -> None:
    first, second = arrays([0, 1, 0], [1])
    with pytest.raises(FedmapError, match=r"^south has one sample"):
        Federation.from_arrays({"north": first, "south": second})


def test_no_arrays_make_no_federation() -> None:
    with pytest.raises(FedmapError, match="there is no client"):
        Federation.from_arrays([])


def tables(clients: int = 3) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Clients whose features have very different ranges."""
    rng = np.random.default_rng(0)
    ranges = np.array([1.0, 1e5, 1e-3])
    return {
        f"site {k}": (rng.standard_normal((40, 3)) * ranges + 10 * k, np.arange(40) % 4)
        for k in range(clients)
    }


def test_own_vectors_are_scaled_by_the_training_samples_of_all_clients_alone() -> None:
    drawn = Federation.from_arrays(tables())
    trained = torch.cat([drawn.client(k).train[0] for k in range(3)])
    scaled = drawn.dataset.normalize(trained)
    assert scaled.mean(0).abs().max() < 1e-5
    assert scaled.std(0, correction=0).sub(1).abs().max() < 1e-4
    assert torch.equal(drawn.client(0).normalize(trained), scaled)


def test_own_vectors_stay_as_they_are_where_one_says_so() -> None:
    drawn = Federation.from_arrays(tables(), scale="none")
    x = drawn.client(0).train[0]
    assert torch.equal(drawn.client(0).normalize(x), x)


def test_synthetic_vectors_are_not_scaled(federation: Federation) -> None:
    assert federation.dataset.mean == ()


def test_the_number_of_clients_is_a_whole_one() -> None:
    with pytest.raises(FedmapError, match="clients is '5'; a whole number is needed"):
        partition(synthetic(), "5")  # type: ignore[arg-type]
