from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmap.data import DATASETS, FORMATS, Dataset, Defaults, load, register_dataset, synthetic
from fedmap.errors import FedmapError

PAPER = {
    "fashion-mini",
    "fashion-mnist",
    "mnist",
    "cifar-10",
    "cifar-100",
    "cinic-10",
    "femnist",
    "synthetic",
}


def test_all_sets_and_formats_are_listed_with_one_line() -> None:
    assert set(DATASETS) >= PAPER
    assert set(FORMATS) >= {"folder", "npz", "parquet"}
    sources, formats = DATASETS.items(), FORMATS.items()
    for line in [*(source.line for _, source in sources), *(form.line for _, form in formats)]:
        assert line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("name", "net", "epochs", "lr"),
    [
        ("fashion-mnist", "lenet", 5, 0.03),
        ("cifar-10", "tfcnn", 10, 0.03),
        ("cifar-100", "vgg8-bn", 20, 0.03),
        ("cinic-10", "resnet20", 40, 0.05),
        ("femnist", "femnist", 5, 0.004),
    ],
)
def test_the_papers_settings_are_known_without_the_data(
    name: str, net: str, epochs: int, lr: float
) -> None:
    found = DATASETS[name].defaults
    assert (found.net, found.epochs, found.lr) == (net, epochs, lr)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(FedmapError, match="did you mean 'cifar-10'"):
        load("cifar10")


def test_an_unknown_format_names_those_there_are() -> None:
    with pytest.raises(FedmapError, match=r"no data format 'xls'.*csv, folder, npz, parquet"):
        load("xls:somewhere")


def test_a_format_without_a_path_is_refused() -> None:
    with pytest.raises(FedmapError, match="has no path"):
        load("folder:")


@pytest.fixture
def seen() -> Iterator[list[Path | None]]:
    """The folders with which the dataset `mine` was loaded, which is there for one test."""
    folders: list[Path | None] = []

    def mine(data_dir: Path | None = None) -> Dataset:
        folders.append(data_dir)
        return synthetic(train=4, test=2)

    with DATASETS.restored():
        register_dataset("mine", "a test", Defaults(clients=3))(mine)
        yield folders


def test_a_users_own_dataset_is_loaded_by_name(
    seen: list[Path | None],
) -> None:
    assert len(load("mine", Path("there")).train_y) == 4
    assert seen == [Path("there")]
    assert DATASETS["mine"].defaults.clients == 3


def test_a_users_own_dataset_cannot_take_the_name_of_another() -> None:
    with pytest.raises(FedmapError, match=r"registered already, by fedmap\.data\.official\.mnist"):
        register_dataset("mnist", "another")(lambda _: synthetic(train=4, test=2))
