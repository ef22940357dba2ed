import gzip
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from writers import write_mnist

from fedmap.data import DATASETS, load
from fedmap.data.files import idx
from fedmap.data.official.families import mnist
from fedmap.data.official.fashion_mnist import MINI_FOLDER
from fedmap.errors import FedmapError

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_fashion_mini.py"


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize(("pack", "end"), [(bytes, ""), (gzip.compress, ".gz")])
def test_plain_and_gz_files_under_both_usual_names_are_read(
    tmp_path: Path, pack: Callable[[bytes], bytes], end: str, mark: str
) -> None:
    write_mnist(tmp_path / "mnist", pack=pack, end=end, mark=mark)
    data = load("mnist", tmp_path)
    assert data.train_x.shape == (30, 1, 32, 32)
    assert data.train_x.dtype == torch.uint8
    assert data.test_y.tolist() == [i % 10 for i in range(20)]
    assert data.classes == tuple("0123456789")
    assert not data.augment


def test_images_are_scaled_not_padded() -> None:
    images = np.zeros((1, 28, 28), np.uint8)
    images[0, 0, 0] = 200
    corner = mnist.scale(images)[0, 0]
    assert corner[0, 0] == 200
    # its middle lies 0.8125 of an old pixel to the right: 0.1875 of 200, rounded
    assert corner[0, 1] == 38


def test_scaling_keeps_a_flat_image_flat() -> None:
    assert torch.equal(
        mnist.scale(np.full((2, 28, 28), 77, np.uint8)),
        torch.full((2, 1, 32, 32), 77, dtype=torch.uint8),
    )


def test_normalized_pixels_lie_between_minus_one_and_one() -> None:
    data = load("fashion-mini")
    x = data.normalize(data.test_x[:100])
    assert x.min() == -1
    assert x.max() == 1


def test_fashion_mini_loads_at_once() -> None:
    start = time.perf_counter()
    load("fashion-mini")
    assert time.perf_counter() - start < 2  # on a busy machine; alone it takes 0.2


def test_fashion_mini_is_balanced_and_has_its_own_defaults() -> None:
    data = load("fashion-mini")
    assert data.name == "fashion-mini"
    assert data.train_y.bincount().tolist() == [1000] * 10
    assert data.test_y.bincount().tolist() == [200] * 10
    assert data.shape == (1, 32, 32)
    assert data.defaults.clients == 20
    assert DATASETS["fashion-mini"].defaults == data.defaults


def test_fashion_mini_is_small_and_has_the_license_beside_it() -> None:
    assert sum(path.stat().st_size for path in MINI_FOLDER.iterdir()) < 8_000_000
    assert "Copyright (c) 2017 Zalando SE" in (MINI_FOLDER / "LICENSE").read_text()


def test_the_script_keeps_the_first_of_each_class_in_official_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "official", train=40, test=2500)
    monkeypatch.setattr(
        sys, "argv", [str(SCRIPT), str(tmp_path / "official"), str(tmp_path / "mini")]
    )
    runpy.run_path(str(SCRIPT), run_name="__main__")
    (x, y), (mini_x, mini_y) = (
        mnist.read_part(tmp_path / folder, "test") for folder in ("official", "mini")
    )
    assert np.array_equal(mini_y, y[:2000])
    assert np.array_equal(mini_x, x[:2000])
    assert len(mnist.read_part(tmp_path / "mini", "train")[1]) == 40


def test_fashion_mini_is_what_the_script_chooses_from_the_official_files(real: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    for part, count in script["PER_CLASS"].items():
        x, y = mnist.read_part(real / "fashion-mnist", part)
        keep = script["chosen"](y, count)
        mini_x, mini_y = mnist.read_part(MINI_FOLDER, part)
        assert np.array_equal(mini_x, x[keep])
        assert np.array_equal(mini_y, y[keep])


def test_labels_and_images_must_be_equally_many(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx.encode(np.zeros(7, np.uint8)))
    with pytest.raises(FedmapError, match="30 images but 7 labels"):
        load("mnist", tmp_path)


def test_a_label_above_nine_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").write_bytes(
        idx.encode(np.full(30, 10, np.uint8))
    )
    with pytest.raises(FedmapError, match="a label beside it is 10"):
        load("mnist", tmp_path)


def test_images_of_another_size_are_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "train-images-idx3-ubyte").write_bytes(
        idx.encode(np.zeros((30, 5, 6), np.uint8))
    )
    with pytest.raises(FedmapError, match="5 x 6 pixels; they must have 28 x 28"):
        load("mnist", tmp_path)


def test_a_missing_file_of_the_set_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FedmapError, match="no t10k-labels-idx1-ubyte"):
        load("mnist", tmp_path)
