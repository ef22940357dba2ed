from pathlib import Path

import pytest
from writers import CIFAR, write_cifar, write_cinic, write_femnist, write_mnist

from fedmap.data import load
from fedmap.data.official import femnist
from fedmap.data.official.mnist import Mnist
from fedmap.data.verify import check, listed
from fedmap.errors import FedmapError


def test_all_sets_are_listed_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "given" / "mnist")
    write_femnist(tmp_path / "variable")
    monkeypatch.setenv("FEDMAP_DATA", str(tmp_path / "variable"))
    rows = {row.name: (row.folder, row.place) for row in listed(tmp_path / "given")}
    assert rows["mnist"] == (tmp_path / "given" / "mnist", "--data-dir")
    assert rows["femnist"] == (tmp_path / "variable" / "femnist", "FEDMAP_DATA")
    assert rows["cifar-10"] == (None, "")
    assert rows["fashion-mini"] == rows["synthetic"] == (None, "built in")


@pytest.mark.parametrize("version", ["bin", "py"])
def test_other_bytes_than_the_published_ones_are_named(tmp_path: Path, version: str) -> None:
    write_cifar(tmp_path, "cifar-10", version)
    report = check("cifar-10", tmp_path)
    assert "20 train images" in report.facts
    assert len(report.wrong) == 6
    assert report.verdict.startswith("not the official set: data_batch_1")


def test_other_idx_data_than_the_published_one_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    report = check("mnist", tmp_path)
    assert report.missing == ["30 of 60,000 train images", "20 of 10,000 test images"]
    assert len(report.wrong) == 4
    assert Mnist.md5["train-images-idx3-ubyte"] in report.verdict


def test_a_part_of_a_set_passes_and_is_called_a_part(tmp_path: Path) -> None:
    write_cinic(tmp_path)
    write_femnist(tmp_path)
    assert check("cinic-10", tmp_path).verdict == (
        "a part of the official set, usable: 20 of 90,000 train images; 20 of 90,000 test images"
    )
    assert check("femnist", tmp_path).verdict == (
        "a part of the official set, usable: 3 of 3,550 writers; 6 of 805,263 samples"
    )


def test_a_check_never_trusts_the_cache(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar-10", "bin")
    load("cifar-10", tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(FedmapError, match="not a whole number of records"):
        check("cifar-10", tmp_path)


def test_what_has_no_official_files_cannot_be_checked() -> None:
    with pytest.raises(FedmapError, match="no official files to check for 'synthetic'"):
        check("synthetic")


@pytest.mark.parametrize("name", ["fashion-mnist", "mnist", "cifar-10", "cifar-100"])
def test_the_real_files_are_the_complete_official_set(real: Path, name: str) -> None:
    assert check(name, real).verdict == "complete official set"


def test_the_real_cinic_sample_is_read(real: Path) -> None:
    report = check("cinic-10", real)
    assert not report.wrong
    data = load("cinic-10", real)
    assert data.train_y.bincount().unique().numel() == 1
    assert data.shape == (3, 32, 32)


def test_a_real_femnist_file_is_read(real: Path) -> None:
    path = femnist.Femnist().files(real / "femnist")[0]
    for x, y in femnist.read_file(path).values():
        assert x.shape == (len(y), 28, 28)
        assert x[:, 0, 0].min() > 200  # the background is white


def test_the_same_real_images_give_the_same_data_from_the_cache(real: Path) -> None:
    first, second = load("cifar-10", real), load("cifar-10", real)
    assert bool((first.train_x[::100] == second.train_x[::100]).all())
    x, y = CIFAR["cifar-10"].read_file(real / "cifar-10-batches-bin" / "data_batch_1.bin")
    assert (first.train_x[:10000].numpy() == x).all()
    assert (first.train_y[:10000].numpy() == y).all()
