import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from writers import CIFAR, write_cifar

from fedmap.data import load
from fedmap.errors import FedmapError


@pytest.mark.parametrize("version", ["bin", "py"])
@pytest.mark.parametrize("name", ["cifar-10", "cifar-100"])
def test_both_versions_of_both_sets_are_read(tmp_path: Path, name: str, version: str) -> None:
    content = write_cifar(tmp_path, name, version)
    data = load(name, tmp_path)
    official = CIFAR[name]
    train = [content[stem] for stem in official.train_files]
    test_x, test_y = content[official.test_file]
    assert data.train_y.tolist() == [int(label) for _, y in train for label in y]
    assert np.array_equal(data.train_x.flatten(1).numpy(), np.concatenate([x for x, _ in train]))
    assert data.test_y.tolist() == test_y.tolist()
    assert np.array_equal(data.test_x.numpy(), test_x.reshape(-1, 3, 32, 32))
    assert data.augment
    assert data.train_x.dtype == torch.uint8
    assert data.classes == official.classes


@pytest.mark.parametrize("version", ["bin", "py"])
def test_without_a_cache_the_set_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    write_cifar(tmp_path, "cifar-10", version)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert len(load("cifar-10", tmp_path).test_y) == 4


def test_there_are_ten_and_a_hundred_classes_in_the_official_order() -> None:
    ten, hundred = CIFAR["cifar-10"].classes, CIFAR["cifar-100"].classes
    assert " ".join(ten) == "airplane automobile bird cat deer dog frog horse ship truck"
    assert len(set(hundred)) == 100
    assert list(hundred) == sorted(hundred)


def test_pixels_are_normalized_by_the_papers_numbers(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar-10", "bin")
    data = load("cifar-10", tmp_path)
    black = data.normalize(torch.zeros(1, 3, 1, 1, dtype=torch.uint8)).flatten()
    assert black.tolist() == pytest.approx([-0.4914 / 0.2023, -0.4822 / 0.1994, -0.4465 / 0.2010])


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar-10", "bin")
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        FedmapError,
        match=r"data_batch_3\.bin: 12,291 bytes are not a whole number of records of 3073",
    ):
        load("cifar-10", tmp_path)


@pytest.mark.parametrize("version", ["bin", "py"])
def test_a_label_out_of_range_is_named(tmp_path: Path, version: str) -> None:
    write_cifar(tmp_path, "cifar-100", version)
    if version == "bin":
        (tmp_path / "cifar-100-binary" / "test.bin").write_bytes(b"\x00\x64" + bytes(3072))
    else:
        (tmp_path / "cifar-100-python" / "test").write_bytes(
            pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "fine_labels": [100]}, 4)
        )
    with pytest.raises(
        FedmapError, match=r"test.*: there are labels from 100 to 100; 0\.\.99 are allowed"
    ):
        load("cifar-100", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"data": [1, 2]},
        {"data": np.zeros((2, 3072)), "labels": [1, 2]},
        {"data": np.zeros((2, 5), np.uint8), "labels": [1, 2]},
        {"data": np.zeros((2, 3072), np.uint8)},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1, "2"]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1, 10**30]},
    ],
)
def test_a_python_file_with_other_content_is_one_clear_error(tmp_path: Path, content: dict) -> None:
    (tmp_path / "batch").write_bytes(pickle.dumps(content, 4))
    with pytest.raises(FedmapError, match="batch: "):
        CIFAR["cifar-10"].read_file(tmp_path / "batch")


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar-10", "py")
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    with pytest.raises(FedmapError, match="data_batch_4: this file of cifar-10 is missing"):
        load("cifar-10", tmp_path)
