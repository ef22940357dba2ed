from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from writers import write_cinic

from fedmap.data import load
from fedmap.data.official.cinic_10 import Cinic10
from fedmap.errors import FedmapError


def test_train_and_test_are_read_class_by_class_and_validation_is_not(tmp_path: Path) -> None:
    first = write_cinic(tmp_path)
    data = load("cinic-10", tmp_path)
    assert data.train_y.tolist() == [c for c in range(10) for _ in range(2)]
    assert len(data.test_y) == 20
    for c, name in enumerate(Cinic10.classes):
        assert np.array_equal(data.train_x[2 * c].permute(1, 2, 0).numpy(), first[name])


def test_a_gray_image_among_the_others_becomes_color(tmp_path: Path) -> None:
    write_cinic(tmp_path)
    Image.new("L", (32, 32), 50).save(tmp_path / "CINIC-10" / "train" / "airplane" / "0.png")
    assert load("cinic-10", tmp_path).train_x[0].unique().tolist() == [50]


def test_an_image_of_another_size_is_named(tmp_path: Path) -> None:
    write_cinic(tmp_path)
    Image.new("RGB", (33, 32)).save(tmp_path / "CINIC-10" / "test" / "frog" / "1.png")
    with pytest.raises(
        FedmapError, match=r"frog/1\.png: an image of 33 x 32 pixels; it must have 32 x 32"
    ):
        load("cinic-10", tmp_path)


def test_a_corrupt_image_is_named(tmp_path: Path) -> None:
    write_cinic(tmp_path)
    path = tmp_path / "CINIC-10" / "test" / "frog" / "1.png"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(FedmapError, match=r"frog/1\.png: not an image"):
        load("cinic-10", tmp_path)


def test_a_missing_class_is_named(tmp_path: Path) -> None:
    write_cinic(tmp_path, n=1)
    for path in (tmp_path / "CINIC-10" / "test" / "ship").iterdir():
        path.unlink()
    (tmp_path / "CINIC-10" / "test" / "ship").rmdir()
    with pytest.raises(FedmapError, match="test/ship: this folder of cinic-10 cannot be read"):
        load("cinic-10", tmp_path)


def test_an_image_that_changed_is_read_again(tmp_path: Path) -> None:
    write_cinic(tmp_path)
    load("cinic-10", tmp_path)
    Image.new("RGB", (32, 32), (7, 7, 7)).save(
        tmp_path / "CINIC-10" / "train" / "airplane" / "0.png"
    )
    assert load("cinic-10", tmp_path).train_x[0].unique().tolist() == [7]
