import pytest
import torch

from fedmap.data import load, synthetic
from fedmap.errors import FedmapError


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data() -> None:
    one, same, other = (synthetic(train=20, test=10, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.train_x, same.train_x)
    assert torch.equal(one.test_y, same.test_y)
    assert not torch.equal(one.train_x, other.train_x)


def test_it_is_loaded_by_name_with_2000_and_500_images() -> None:
    data = load("synthetic")
    assert data.train_x.shape == (2000, 1, 32, 32)
    assert data.test_y.bincount().tolist() == [50] * 10


@pytest.mark.parametrize("shape", [(5,), (3, 8, 8)])
def test_vectors_and_images_of_any_size_can_be_made(shape: tuple[int, ...]) -> None:
    data = synthetic(classes=3, train=9, test=6, shape=shape)
    assert data.shape == shape
    assert data.train_y.bincount().tolist() == [3, 3, 3]
    assert data.train_x.dtype == (torch.uint8 if len(shape) == 3 else torch.float32)


@pytest.mark.parametrize("shape", [(20,), (1, 32, 32)])
def test_the_nearest_class_mean_tells_the_classes_apart(shape: tuple[int, ...]) -> None:
    data = synthetic(train=200, test=100, shape=shape)
    train, test = (data.normalize(x).flatten(1) for x in (data.train_x, data.test_x))
    means = torch.stack([train[data.train_y == c].mean(0) for c in range(10)])
    assert (torch.cdist(test, means).argmin(1) == data.test_y).float().mean() > 0.95


@pytest.mark.parametrize("shape", [(), (3, 3), (1, 0, 4)])
def test_an_impossible_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(FedmapError, match="synthetic data of shape"):
        synthetic(shape=shape)


def test_data_without_a_class_is_refused() -> None:
    with pytest.raises(FedmapError, match="synthetic data of 0 classes"):
        synthetic(classes=0)
