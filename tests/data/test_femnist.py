from pathlib import Path

import pytest
import torch
from writers import leaf_image, leaf_shard, write_femnist, write_leaf

from fedmap.data import load
from fedmap.data.official import femnist
from fedmap.errors import FedmapError


def test_all_files_are_merged_by_writer_in_the_order_of_names(tmp_path: Path) -> None:
    write_femnist(tmp_path)
    data = load("femnist", tmp_path)
    assert data.client_names == ("f1", "f2", "f9")
    assert data.owner is not None
    assert data.owner.tolist() == [0, 1, 1, 2, 2, 2]
    assert data.train_x[:, 0, 0, 0].tolist() == [4, 3, 5, 1, 2, 6]
    assert data.train_y.tolist() == [3, 10, 11, 0, 61, 0]
    assert data.defaults.clients == 3


def test_the_test_set_is_empty_and_a_class_is_observed_from_two_samples_on(tmp_path: Path) -> None:
    write_femnist(tmp_path)
    data = load("femnist", tmp_path)
    assert data.test_x.shape == (0, 1, 28, 28)
    assert data.observed_from == 2


def test_pixels_come_back_as_leaf_has_them(tmp_path: Path) -> None:
    folder = tmp_path / "femnist"
    write_leaf(folder, "train", "a.json", leaf_shard({"w": [(v, 0) for v in range(256)]}))
    data = load("femnist", tmp_path)
    x = data.normalize(data.train_x)
    assert torch.equal(x[:, 0, 0, 0], torch.arange(256).float() / 255)
    assert x[0, 0, 1, 1] == 1.0


def test_classes_are_digits_then_upper_then_lower_case() -> None:
    assert "".join(femnist.CLASSES[i] for i in (0, 9, 10, 35, 36, 61)) == "09AZaz"


GOOD = leaf_shard({"f1": [(4, 3)]})


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {**GOOD, "users": ["f1", "f2"]},
        {**GOOD, "users": ["f1", "f1"], "num_samples": [1, 1]},
        {**GOOD, "users": [1]},
        {**GOOD, "num_samples": [2]},
        {**GOOD, "user_data": {"f2": {}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(4)], "y": []}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(4)[:-1]], "y": [3]}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(256)], "y": [3]}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(-1)], "y": [3]}}},
        {**GOOD, "user_data": {"f1": {"x": [[float("nan")] * 784], "y": [3]}}},
        {**GOOD, "user_data": {"f1": {"x": [["a"] * 784], "y": [3]}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(4)], "y": [62]}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(4)], "y": [-1]}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(4)], "y": [0.5]}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(4)], "y": [10**30]}}},
        {**GOOD, "user_data": {"f1": {"x": [leaf_image(4)], "y": ["3"]}}},
        {**GOOD, "user_data": {"f1": {"x": [[10**400] * 784], "y": [3]}}},
    ],
)
def test_content_that_leaf_does_not_write_is_one_clear_error(
    tmp_path: Path, content: object
) -> None:
    path = write_leaf(tmp_path, "train", "a.json", content)
    with pytest.raises(FedmapError, match=r"a\.json: not a json file as LEAF writes it"):
        femnist.read_file(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 200_000, b"\xff\xfe\x00", b'{"users": 1'])
def test_what_is_not_json_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(FedmapError, match=r"a\.json: not a json file"):
        femnist.read_file(tmp_path / "a.json")


def test_a_set_without_any_sample_is_refused(tmp_path: Path) -> None:
    write_leaf(tmp_path / "femnist", "train", "a.json", leaf_shard({"f1": []}))
    with pytest.raises(FedmapError, match="no sample of any writer"):
        load("femnist", tmp_path)
