from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmap.data import from_huggingface
from fedmap.errors import FedmapError
from fedmap.federation import Federation


class ClassLabel:
    names = ("cat", "dog", "fox")


class Hub:
    """Looks like `datasets.Dataset`: columns by name, `column_names` and `features`."""

    def __init__(self, **columns: list) -> None:
        self._columns = columns
        self.column_names = list(columns)
        self.features: Mapping[str, object] = {"label": ClassLabel()}

    def __getitem__(self, column: str) -> list:
        return self._columns[column]


def picture(
    value: int | tuple[int, ...], size: tuple[int, int] = (8, 8), mode: str = "L"
) -> Image.Image:
    return Image.new(mode, size, value)


def test_one_table_with_a_column_of_clients_is_split_by_it() -> None:
    table = Hub(image=[picture(v) for v in (1, 2, 3)], label=[0, 1, 0], site=["s10", "s2", "s10"])
    data = from_huggingface(table, client="site")
    assert data.client_names == ("s2", "s10")
    assert data.train_x[:, 0, 0, 0].tolist() == [2, 1, 3]
    assert data.classes == ("cat", "dog", "fox")
    assert data.shape == (1, 8, 8)


def test_one_table_for_each_client_keeps_their_order() -> None:
    tables = {"b": Hub(image=[picture(1)], label=[2]), "a": Hub(image=[picture(2)], label=[0])}
    data = from_huggingface(tables, test=Hub(image=[picture(3)], label=[1]))
    assert data.client_names == ("b", "a")
    assert data.train_y.tolist() == [2, 0]
    assert data.test_y.tolist() == [1]


def test_a_plain_dictionary_of_columns_works_and_text_labels_are_named() -> None:
    data = from_huggingface(
        {"x": [[1, 2], [3, 4]], "y": ["q", "p"], "who": [1, 2]}, x="x", y="y", client="who"
    )
    assert data.train_x.tolist() == [[1, 2], [3, 4]]
    assert data.classes == ("p", "q")
    assert data.client_names == ("1", "2")


def test_several_columns_of_numbers_are_one_vector() -> None:
    data = from_huggingface(
        {"age": [1, 2], "income": [3.5, 4.5], "label": [0, 1], "who": ["a", "b"]},
        x=["age", "income"],
        client="who",
    )
    assert data.train_x.tolist() == [[1, 3.5], [2, 4.5]]


def test_pictures_of_different_size_and_color_are_made_alike() -> None:
    table = Hub(
        image=[picture(5), picture((1, 2, 3), (20, 10), "RGB")], label=[0, 1], site=["a", "b"]
    )
    data = from_huggingface(table, client="site", size=(12, 12))
    assert data.shape == (3, 12, 12)
    assert data.train_x[0].unique().tolist() == [5]


def test_arrays_as_samples_are_taken() -> None:
    table = Hub(image=[np.zeros((4, 4, 3), np.uint8)] * 2, label=[0, 1], site=["a", "b"])
    assert from_huggingface(table, client="site").shape == (3, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"data": Hub(image=[], label=[])}, "name the column of clients"),
        (
            {"data": Hub(image=[picture(1)], label=[0]), "client": "site"},
            "there is no column 'site'; there are: image, label",
        ),
        (
            {"data": {"image": [picture(1)], "who": [1]}, "client": "who"},
            "there is no column 'label'; there are: image, who",
        ),
        ({"data": {"a": Hub(image=[], label=[])}}, "a: there is no sample"),
        ({"data": {"a": Hub(image=[[1], [1, 2]], label=[0, 0])}}, "a: the samples differ in shape"),
        ({"data": {"a": Hub(image=[[1], [2]], label=[0, 7])}}, "a: label 7 is none of the classes"),
        (
            {"data": Hub(image=[[1], [2]], label=[0, 1], site=["a"]), "client": "site"},
            "columns differ in length",
        ),
        ({"data": {}}, "there is no client"),
    ],
)
def test_what_cannot_be_used_is_one_clear_sentence(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(FedmapError, match=says):
        from_huggingface(**arguments)


def test_a_picture_that_breaks_when_it_is_decoded_is_one_clear_sentence(
    tmp_path: Path,
) -> None:
    picture(3, (64, 64)).save(tmp_path / "a.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    with (
        Image.open(tmp_path / "a.png") as lazy,
        pytest.raises(FedmapError, match="a: there is an image that cannot be read"),
    ):
        from_huggingface({"a": Hub(image=[lazy], label=[0])})


# As a client's data.


def test_a_table_is_a_clients_data_and_its_labels_are_names() -> None:
    one = Hub(image=[picture(v) for v in (1, 2, 3)], label=[0, 1, 0])
    other = Hub(image=[picture(v) for v in (4, 5, 6)], label=[2, 1, 2])
    data = Federation.from_arrays(
        {"a": one, "b": other}, Hub(image=[picture(7)], label=[2])
    ).dataset
    assert data.classes == ("cat", "dog", "fox")
    assert data.train_y.tolist() == [0, 1, 0, 2, 1, 2]
    assert data.train_x[:, 0, 0, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert data.test_y.tolist() == [2]


def test_all_other_columns_are_one_vector_where_none_has_a_usual_name() -> None:
    table = Hub(age=[1, 2], label=[0, 1], income=[3.5, 4.5])
    data = Federation.from_arrays([table, table], scale="none").dataset
    assert data.train_x.tolist() == [[1, 3.5], [2, 4.5]] * 2


def test_a_column_of_labels_needs_no_class_names() -> None:
    table = Hub(x=[[1, 2], [3, 4]], y=["q", "p"], note=["a", "b"])
    assert Federation.from_arrays([table]).dataset.classes == ("p", "q")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (Hub(image=[[1], [2]], kind=[0, 1]), "columns image, kind, of which 0 could be the labels"),
        (Hub(image=[[1], [2]], labels=[0, 1], y=[0, 1]), "2 could be the labels"),
        (Hub(image=[[1], [2]], label=[0, -1]), "label -1 is none of the classes 0 to 2"),
        (Hub(name=["a", "b"], age=[1, 2], label=[0, 1]), "samples of type <U"),
    ],
)
def test_a_table_whose_columns_do_not_say_what_they_are_is_refused(table: Hub, says: str) -> None:
    with pytest.raises(FedmapError, match=says):
        Federation.from_arrays([table])
