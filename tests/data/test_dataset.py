from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fedmap.data import Dataset, load, synthetic
from fedmap.data.dataset import Sums, normalize
from fedmap.errors import FedmapError

DATA = synthetic(classes=2, train=6, test=2, shape=(4,))


def owned(owner: list[int], names: tuple[str, ...] = ()) -> Dataset:
    return replace(DATA, owner=torch.tensor(owner, dtype=torch.int64), client_names=names)


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


PIXELS = torch.tensor([[0, 51, 255], [255, 102, 0]], dtype=torch.uint8).view(1, 2, 1, 3)


def test_pixels_are_shifted_and_scaled_for_each_channel() -> None:
    got = normalize(PIXELS, (0.5, 0.2), (0.25, 0.5)).view(2, 3).tolist()
    assert got[0] == pytest.approx([-2, -1.2, 2])
    assert got[1] == pytest.approx([1.6, 0.4, -0.4])


def test_without_a_mean_pixels_are_scaled_to_one() -> None:
    got = normalize(PIXELS, (), ()).flatten().tolist()
    assert got == pytest.approx([0, 0.2, 1, 1, 0.4, 0])


def test_images_that_are_no_pixels_and_vectors_without_statistics_stay_as_they_are() -> None:
    images, vectors = torch.randn(4, 1, 3, 3), torch.randn(4, 3)
    assert normalize(images, (0.5,), (0.5,)) is images
    assert normalize(vectors, (), ()) is vectors


def test_samples_are_normalized_on_their_own_device_whatever_the_default_is() -> None:
    expected = normalize(PIXELS, (0.5, 0.2), (0.25, 0.5))
    with torch.device("meta"):
        got = normalize(PIXELS, (0.5, 0.2), (0.25, 0.5))
    assert torch.equal(got, expected)


def test_a_dataset_normalizes_with_its_own_numbers() -> None:
    data = replace(synthetic(train=4, test=2), mean=(0.1,), std=(0.3,))
    assert torch.equal(data.normalize(data.train_x), normalize(data.train_x, (0.1,), (0.3,)))


def test_a_smaller_dataset_has_the_first_samples_of_every_class() -> None:
    data = synthetic(classes=3, train=90, test=30, shape=(2,))
    fewer = data.smaller(30)
    assert fewer.train_y.bincount().tolist() == [10, 10, 10]
    assert fewer.test_y.bincount().tolist() == [3, 3, 3]
    for c in range(3):
        first = data.train_x[data.train_y == c][:10]
        assert torch.equal(fewer.train_x[fewer.train_y == c], first)


def test_a_smaller_dataset_keeps_a_sample_of_every_class() -> None:
    assert synthetic(classes=5, train=50, test=10).smaller(1).train_y.bincount().tolist() == [1] * 5


def test_a_smaller_dataset_has_whole_owners() -> None:
    fewer = owned([0, 0, 1, 1, 2, 2], ("north", "south", "west")).smaller(3)
    assert fewer.owner is not None
    assert fewer.owner.tolist() == [0, 0, 1, 1]
    assert fewer.client_names == ("north", "south")
    assert torch.equal(fewer.train_x, DATA.train_x[:4])


def test_more_samples_than_there_are_change_nothing() -> None:
    assert DATA.smaller(7) is DATA


def test_a_dataset_without_samples_cannot_be_asked_for() -> None:
    with pytest.raises(FedmapError, match="samples is 0; at least 1 is needed"):
        DATA.smaller(0)


def test_sums_give_the_statistics_of_all_samples_together() -> None:
    x = torch.randn(50, 3) * torch.tensor([1.0, 1e4, 1e-3]) + torch.tensor([0.0, 5e6, 2.0])
    mean, std = Sums.added([Sums.of(x[:20]), Sums.of(x[20:])]).statistics()
    assert torch.tensor(mean).allclose(x.double().mean(0).float())
    assert torch.tensor(std).allclose(x.double().std(0, correction=0).float(), rtol=1e-3)


def test_vectors_with_statistics_get_mean_zero_and_deviation_one() -> None:
    x = torch.randn(200, 2) * torch.tensor([3.0, 1e4]) + torch.tensor([7.0, 1e6])
    scaled = normalize(x, *Sums.of(x).statistics())
    assert scaled.dtype == torch.float32
    assert scaled.mean(0).abs().max() < 1e-5
    assert scaled.std(0, correction=0).sub(1).abs().max() < 1e-4


@pytest.mark.parametrize("value", [0.0, 0.1, 123456.789])
def test_a_constant_feature_becomes_zero(value: float) -> None:
    x = torch.full((1000, 1), value)
    mean, std = Sums.of(x).statistics()
    assert std == (1.0,)
    assert normalize(x, mean, std).abs().max() < 1e-6


def test_normalize_leaves_the_samples_themselves_alone() -> None:
    x = torch.ones(2, 2)
    normalize(x, (1.0, 1.0), (2.0, 2.0))
    assert x.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize(("value", "fine"), [(1.8e19, True), (-1e30, False), (1e30, False)])
def test_a_feature_that_cannot_be_squared_is_refused_with_its_name_and_value(
    value: float, fine: bool
) -> None:
    x = torch.zeros(3, 2)
    x[1, 1] = value
    y = torch.tensor([0, 1, 0])
    given: dict[str, Any] = {"classes": ("a", "b"), "features": ("age", "income")}

    def made() -> Dataset:
        return Dataset("own", x, y, x[:0], y[:0], **given)

    if fine:
        assert made().train_x[1, 1] == value
        return
    sentence = (
        rf"feature 'income' of train sample 1 is {value:.3g}; values up to 1\.84e\+19".replace(
            "1e+30", r"1e\+30"
        )
    )
    with pytest.raises(FedmapError, match=sentence):
        made()


def test_a_table_with_a_feature_that_cannot_be_squared_names_its_column(tmp_path: Path) -> None:
    (tmp_path / "oslo.csv").write_text("age,income,y\n1,2,0\n2,1e30,1\n3,4,0\n")
    with pytest.raises(FedmapError, match=r"row 3 has 1e30 in column income; numbers up to 1\.84"):
        load(f"csv:{tmp_path}")
