from random import Random

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fedmap.data import from_clients
from fedmap.data.own.arrays import natural
from fedmap.errors import FedmapError

RNG = np.random.default_rng(0)


def images(n: int, *shape: int) -> np.ndarray:
    return RNG.integers(256, size=(n, *shape), dtype=np.uint8)


def test_clients_keep_their_names_order_and_samples() -> None:
    x = images(5, 3, 8, 8)
    data = from_clients({"zoo": (x[:2], [0, 1]), "farm": (x[2:], [1, 1, 0])})
    assert data.client_names == ("zoo", "farm")
    assert data.owner is not None
    assert data.owner.tolist() == [0, 0, 1, 1, 1]
    assert np.array_equal(data.train_x.numpy(), x)
    assert data.train_y.tolist() == [0, 1, 1, 1, 0]
    assert data.defaults.clients == 2


def test_without_a_test_set_it_is_empty_and_with_one_it_is_kept() -> None:
    client = {"a": (np.ones((3, 4)), [0, 1, 0])}
    assert from_clients(client).test_x.shape == (0, 4)
    assert from_clients(client, (np.ones((2, 4)), [1, 1])).test_y.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        ([0, 1, 2], ("0", "1", "2"), [0, 1, 2]),
        ([7, -3, 7], ("-3", "7"), [1, 0, 1]),
        ([2.0, 10.0, 2.0], ("2", "10"), [0, 1, 0]),
        (["dog", "cat", "dog"], ("cat", "dog"), [1, 0, 1]),
        (["grade 10", "grade 2", "grade 2"], ("grade 2", "grade 10"), [1, 0, 0]),
        ([True, False, True], ("0", "1"), [1, 0, 1]),
        (np.array([[3], [4], [3]]), ("3", "4"), [0, 1, 0]),
        (np.array(["b", "a", "b"], object), ("a", "b"), [1, 0, 1]),
    ],
)
def test_any_labels_become_numbers_and_keep_their_names(
    labels: npt.ArrayLike, classes: tuple[str, ...], numbers: list[int]
) -> None:
    data = from_clients({"a": (np.zeros((3, 2)), labels)})
    assert data.classes == classes
    assert data.train_y.tolist() == numbers


def test_a_class_that_only_one_client_or_only_the_test_set_has_is_counted() -> None:
    x = np.zeros((2, 2))
    data = from_clients({"a": (x, ["p", "q"]), "b": (x, ["q", "r"])}, (x, ["r", "s"]))
    assert data.classes == ("p", "q", "r", "s")
    assert data.train_y.tolist() == [0, 1, 1, 2]


@pytest.mark.parametrize("labels", [[2, 0], ["z", "x"]])
def test_given_class_names_are_kept_even_for_classes_that_nobody_has(labels: list) -> None:
    data = from_clients({"a": (np.zeros((2, 2)), labels)}, classes=["x", "y", "z"])
    assert data.classes == ("x", "y", "z")
    assert data.train_y.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("x", "shape"),
    [
        (images(2, 8, 9), (1, 8, 9)),
        (images(2, 3, 8, 9), (3, 8, 9)),
        (images(2, 8, 9, 3), (3, 8, 9)),
        (images(2, 8, 9, 1), (1, 8, 9)),
        (images(2, 4, 8, 9), (4, 8, 9)),
        (np.zeros((2, 3, 8, 9)), (3, 8, 9)),
        (images(2, 5), (5,)),
        (np.zeros((2, 5), np.int32), (5,)),
    ],
)
def test_images_with_channels_first_last_or_none_and_vectors_are_taken(
    x: np.ndarray, shape: tuple[int, ...]
) -> None:
    data = from_clients({"a": (x, [0, 1])})
    assert data.shape == shape
    assert data.train_x.dtype == (
        torch.uint8 if x.dtype == np.uint8 and x.ndim > 2 else torch.float32
    )
    assert data.defaults.net == ("mlp" if len(shape) == 1 else "lenet")


def test_gray_and_color_mixed_become_color_and_sizes_are_made_equal() -> None:
    data = from_clients(
        {"gray": (np.full((2, 8, 8), 9, np.uint8), [0, 1]), "color": (images(2, 3, 40, 20), [0, 1])}
    )
    assert data.train_x.shape == (4, 3, 32, 32)
    assert data.train_x[:2].unique().tolist() == [9]
    assert len(data.mean) == 3


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ({}, "there is no client"),
        ({"a": (np.zeros((0, 3)), [])}, "a: there is no sample"),
        ({"a": ([], [])}, "a: there is no sample"),
        ({"a": (np.zeros(3), [0, 1, 2])}, r"a: samples of shape \(3,\)"),
        ({"a": (np.zeros((3, 0)), [0, 1, 2])}, r"a: samples of shape \(3, 0\)"),
        ({"a": ([[1, 2], [3]], [0, 1])}, "a: the samples differ in shape"),
        ({"a": ([["p", "q"]], [0])}, "a: samples of type"),
        (
            {"a": ([[1.0, 2.0], [3.0, float("nan")]], [0, 1])},
            "a: sample 1 has a value that is not finite",
        ),
        ({"a": ([[1e300, 2.0]], [0])}, "a: sample 0 has a value that is not finite"),
        ({"a": (np.zeros((2, 3)), [0])}, "a: 2 samples but labels of shape"),
        ({"a": (np.zeros((2, 3)), [0.5, 1])}, "a: labels of type float64, such as 0.5"),
        ({"a": (np.zeros((2, 3)), [float("nan"), 1])}, "a: labels of type float64, such as nan"),
        ({"a": (np.zeros((2, 3)), np.array(["x", None], object))}, "a: labels of type object"),
        (
            {"a": (np.zeros((2, 3)), [0, 1]), "b": (np.zeros((2, 3)), ["x", "y"])},
            "a: labels are numbers but those of b are text",
        ),
        (
            {"a": (np.zeros((2, 3)), [0, 1]), "b": (np.zeros((2, 4)), [0, 1])},
            "b: samples are vectors of 4 values but those of a",
        ),
        (
            {"a": (np.zeros((2, 3)), [0, 1]), "b": (images(2, 4, 4), [0, 1])},
            "b: samples are uint8 images",
        ),
        (
            {"a": (images(2, 1, 4, 4), [0, 1]), "b": (images(2, 2, 4, 4), [0, 1])},
            r"images have \[1, 2\] channels",
        ),
    ],
)
def test_what_cannot_be_used_is_one_clear_sentence_with_the_clients_name(
    clients: dict, says: str
) -> None:
    with pytest.raises(FedmapError, match=says):
        from_clients(clients)


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ([0, 5], r"a: label 5 is none of the classes; 0\.\.1 are"),
        (["x", "p"], "a: label 'p' is none of the classes; x, y are"),
    ],
)
def test_a_label_that_is_none_of_the_given_classes_is_refused(labels: list, says: str) -> None:
    with pytest.raises(FedmapError, match=says):
        from_clients({"a": (np.zeros((2, 3)), labels)}, classes=["x", "y"])


def test_a_client_cannot_have_the_name_of_the_test_set() -> None:
    pair = (np.zeros((2, 3)), [0, 1])
    with pytest.raises(FedmapError, match="'test' is the name of the test set"):
        from_clients({"test": pair}, pair)


@given(st.lists(st.text(max_size=6)), st.randoms(use_true_random=False))
def test_natural_order_does_not_depend_on_the_order_before(
    names: list[str], random: Random
) -> None:
    shuffled = random.sample(names, len(names))
    assert sorted(names, key=natural) == sorted(shuffled, key=natural)


def test_numbers_in_names_are_ordered_by_value() -> None:
    assert sorted(["client10", "client2", "client02", "a", "9" * 5000], key=natural) == [
        "9" * 5000,
        "a",
        "client02",
        "client2",
        "client10",
    ]


@given(
    st.lists(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=5), min_size=1, max_size=4)
)
def test_renumbered_labels_name_the_original_ones(labels: list[list[int]]) -> None:
    data = from_clients({f"c{k}": (np.zeros((len(y), 1)), y) for k, y in enumerate(labels)})
    assert [int(data.classes[y]) for y in data.train_y.tolist()] == [
        label for y in labels for label in y
    ]


class Items(torch.utils.data.Dataset):
    """Numbered pairs, as torchvision's sets have them."""

    def __init__(self, items: list, classes: list[str] | None = None) -> None:
        self.items = items
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, number: int) -> object:
        return self.items[number]


def test_a_torch_dataset_may_stand_for_a_pair() -> None:
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 2])
    data = from_clients({"a": torch.utils.data.TensorDataset(x, y), "b": (x[:2], y[:2])})
    assert torch.equal(data.train_x, torch.cat([x, x[:2]]))
    assert data.train_y.tolist() == [0, 1, 0, 2, 0, 1]


def test_a_torch_dataset_may_be_the_test_set() -> None:
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    data = from_clients({"a": (x, y)}, torch.utils.data.TensorDataset(x[:2], y[:2]))
    assert torch.equal(data.test_x, x[:2])


def test_numbers_of_classes_are_the_names_in_the_datasets_own_list() -> None:
    one = Items([(torch.zeros(2), 0), (torch.zeros(2), 1)], ["boot", "coat"])
    two = Items([(torch.zeros(2), 0), (torch.zeros(2), 1)], ["coat", "dress"])
    data = from_clients({"one": one, "two": torch.utils.data.Subset(two, [1, 0])})
    assert data.classes == ("boot", "coat", "dress")
    assert data.train_y.tolist() == [0, 1, 2, 1]


def test_a_dataset_of_images_is_read_like_files() -> None:
    items = [(Image.new("L", (9, 7), 5), 0), (Image.new("RGB", (9, 7), (1, 2, 3)), 1)]
    data = from_clients({"a": Items(items)})
    assert data.shape == (3, 7, 9)
    assert data.train_x[1, :, 0, 0].tolist() == [1, 2, 3]
    assert from_clients({"a": Items(items)}, size=(4, 4)).shape == (3, 4, 4)


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (Items([(torch.zeros(2), 0), (torch.zeros(3), 0)]), "samples of 2 different shapes"),
        (Items([torch.tensor(1), torch.tensor(2)]), "a Items is neither a pair of arrays nor"),
        (5, "a int is neither a pair of arrays nor"),
        (Items([]), "there is no sample"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_named(client: object, says: str) -> None:
    with pytest.raises(FedmapError, match=f"oslo: {says}"):
        from_clients({"oslo": client})
