from pathlib import Path

import pytest

from fedmap.data import load, locate
from fedmap.data.locate import cache_dir
from fedmap.data.official.base import OFFICIAL
from fedmap.errors import FedmapError


def put(root: Path, folder: str, mark: str) -> Path:
    path = root / folder / mark
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return root / folder


@pytest.mark.parametrize(
    ("name", "folder", "mark"),
    [
        ("mnist", "mnist", "train-images-idx3-ubyte.gz"),
        ("mnist", "MNIST/raw", "train-images-idx3-ubyte"),
        ("fashion-mnist", "fashion-mnist", "train-images.idx3-ubyte"),
        ("fashion-mnist", "FashionMNIST/raw", "train-images-idx3-ubyte"),
        ("cifar-10", "cifar-10-batches-bin", "data_batch_1.bin"),
        ("cifar-10", "cifar-10-batches-py", "data_batch_1"),
        ("cifar-100", "cifar-100-binary", "train.bin"),
        ("cifar-100", "cifar-100-python", "train"),
        ("cinic-10", "CINIC-10", "train/airplane/a.png"),
        ("femnist", "femnist", "train/a.json"),
        ("femnist", "femnist/data", "train/a.json"),
        ("femnist", "leaf/data/femnist/data", "train/a.json"),
    ],
)
def test_usual_folder_names_are_found(tmp_path: Path, name: str, folder: str, mark: str) -> None:
    put(tmp_path, folder, mark)
    assert OFFICIAL[name].find(tmp_path) == tmp_path / folder


def test_the_folder_of_the_set_itself_may_be_given(tmp_path: Path) -> None:
    folder = put(tmp_path, "MNIST/raw", "train-images-idx3-ubyte")
    assert OFFICIAL["mnist"].find(folder) == folder
    assert OFFICIAL["mnist"].find(folder.parent) == folder


def test_mnist_is_never_taken_for_fashion_mnist(tmp_path: Path) -> None:
    folder = put(tmp_path, "mnist", "train-images-idx3-ubyte")
    assert OFFICIAL["fashion-mnist"].lookup(folder) is None


def test_an_empty_folder_with_the_right_name_is_not_the_set(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    assert OFFICIAL["cifar-10"].lookup(tmp_path) is None


def test_places_are_searched_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = "train-images-idx3-ubyte.gz"
    monkeypatch.setattr(locate, "DEBIAN", tmp_path / "debian")
    monkeypatch.setenv("FEDMAP_DATA", str(tmp_path / "variable"))
    places = {
        "Debian": tmp_path / "debian",
        "cache": cache_dir(),
        "FEDMAP_DATA": tmp_path / "variable",
        "--data-dir": tmp_path / "given",
    }
    # last to first: each one is found before those that are there already
    for what, place in places.items():
        folder = put(place, "fashion-mnist", mark)
        assert OFFICIAL["fashion-mnist"].lookup(tmp_path / "given") == (folder, what)


def test_a_missing_set_says_what_was_looked_for_where_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FedmapError) as error:
        load("fashion-mnist", tmp_path)
    message = str(error.value)
    for part in (
        "fashion-mnist is not there",
        str(tmp_path),
        "train-images-idx3-ubyte",
        "fedmap data get fashion-mnist",
        "apt-get",
        "FEDMAP_DATA",
    ):
        assert part in message
    assert "\n" not in message


def test_a_missing_femnist_says_how_leaf_makes_it() -> None:
    with pytest.raises(
        FedmapError, match=r"preprocess\.sh -s niid --sf 1\.0 -k 0 -t sample"
    ) as error:
        load("femnist")
    assert "data get" not in str(error.value)


def test_a_relative_cache_or_no_home_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dir() == Path("/nonexistent/fedmap")
