from dataclasses import replace

import pytest
import torch

from fedmap.data import Dataset, synthetic
from fedmap.errors import FedmapError

DATA = synthetic(classes=2, train=6, test=2, shape=(4,))


def owned(owner: list[int], names: tuple[str, ...] = ()) -> Dataset:
    return replace(DATA, owner=torch.tensor(owner, dtype=torch.int64), client_names=names)


def test_owners_and_their_names_are_kept() -> None:
    data = owned([0, 0, 1, 1, 1, 0], ("north", "south"))
    assert data.client_names == ("north", "south")


@pytest.mark.parametrize(
    ("owner", "names", "says"),
    [
        ([0, 1], (), "6 training samples but 2 owners"),
        ([0, 0, 0, 0, 0, -1], (), "owners must be"),
        ([0, 0, 0, 0, 0, 2**40], (), "owners must be"),
        ([0, 0, 2, 2, 2, 0], (), "client 1 has no sample"),
        ([0, 0, 1, 1, 1, 0], ("north", "south", "west"), "client 'west' has no sample"),
        ([0, 0, 1, 1, 1, 2], ("north", "south"), "3 clients but 2 client names"),
    ],
)
def test_owners_that_do_not_fit_are_refused(
    owner: list[int], names: tuple[str, ...], says: str
) -> None:
    with pytest.raises(FedmapError, match=says):
        owned(owner, names)


def test_an_empty_test_set_of_the_right_shape_is_allowed() -> None:
    assert len(replace(DATA, test_x=DATA.train_x[:0], test_y=DATA.train_y[:0]).test_y) == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_y": DATA.train_y[:3]}, "6 train samples but 3 train labels"),
        ({"train_x": DATA.train_x.double()}, "torch.float64"),
        (
            {"train_x": DATA.train_x.clone().fill_(float("nan"))},
            "train sample 0 has a value that is not finite",
        ),
        ({"train_y": DATA.train_y + 5}, "train label 6 is outside 0..1"),
        ({"train_x": DATA.train_x[:, :3]}, "training samples have shape"),
        (
            {"train_x": DATA.train_x[:, :, None], "test_x": DATA.test_x[:, :, None]},
            "samples have shape",
        ),
    ],
)
def test_a_dataset_that_does_not_fit_is_refused(change: dict, says: str) -> None:
    with pytest.raises(FedmapError, match=says):
        replace(DATA, **change)
