import importlib
from pathlib import Path

import numpy as np
import pytest

from fedmap.data import load, read_parquet
from fedmap.data.own import parquet
from fedmap.errors import FedmapError


@pytest.fixture
def write(tmp_path: Path):
    """Writes a client's columns; skips the test when pyarrow is not installed."""
    pyarrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def one(name: str, **columns: object) -> None:
        files.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")

    return one


def test_without_pyarrow_the_message_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(parquet, "import_module", absent)
    (tmp_path / "oslo.parquet").touch()
    with pytest.raises(FedmapError, match=r"pip install 'fedmap\[parquet\]'"):
        load(f"parquet:{tmp_path}")


def test_all_columns_but_the_label_are_features(write, tmp_path: Path) -> None:
    write("b", age=[30, 40], income=[1.5, 2.5], y=["no", "yes"])
    write("a", age=[50], income=[3.5], y=["no"])
    write("test", age=[60], income=[4.5], y=["yes"])
    data = load(f"parquet:{tmp_path}")
    assert data.client_names == ("a", "b")
    assert data.train_x.tolist() == [[50, 3.5], [30, 1.5], [40, 2.5]]
    assert data.classes == ("no", "yes")
    assert data.test_x.tolist() == [[60, 4.5]]
    assert data.defaults.net == "mlp"
    assert data.features == ("age", "income")


def test_the_label_may_have_another_name(write, tmp_path: Path) -> None:
    write("a", age=[30, 40], y=[1.5, 2.5], sick=["no", "yes"])
    data = load(f"parquet:{tmp_path}", label_column="sick")
    assert data.classes == ("no", "yes")
    assert data.features == ("age", "y")


@pytest.mark.parametrize("shape", [(2, 3), (2, 5, 5), (2, 3, 6, 6)])
def test_a_column_x_of_lists_is_vectors_or_images(
    write, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    write("a", x=x.tolist(), y=[0, 1], other=["p", "q"])
    data = read_parquet(tmp_path)
    assert np.array_equal(data.train_x.numpy().reshape(shape), x)


def test_lists_of_bytes_stay_bytes(write, tmp_path: Path) -> None:
    pyarrow = importlib.import_module("pyarrow")
    images = pyarrow.array([[[1, 2], [3, 4]]], pyarrow.list_(pyarrow.list_(pyarrow.uint8(), 2)))
    write("a", x=images, y=[0])
    assert read_parquet(tmp_path).train_x.tolist() == [[[[1, 2], [3, 4]]]]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"x": [[1.0, float("nan")]], "y": [0]}, "sample 0 has a value that is not finite"),
        ({"x": [[1.0], None], "y": [0, 1]}, "column x has missing values"),
        ({"x": [[1.0, None]], "y": [0]}, "column x has missing values"),
        ({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}, "the lists in column x have 2 different lengths"),
        ({"x": [["a"]], "y": [0]}, "column x is string, and features are numbers"),
        ({"age": [1, None], "y": [0, 1]}, "column age has missing values"),
        (
            {"age": ["old"], "y": [0]},
            "column age is string, and features are numbers; .* with --categories age",
        ),
        ({"age": [1], "b": [[1, 2]], "y": [0]}, "column b is list<.*>, and features are numbers"),
        ({"age": [1], "y": [None]}, "column y has missing values"),
        ({"age": [1]}, "there is no column 'y'; there are: age; choose with --label"),
        ({"y": [1]}, "there is no column of features"),
        ({"age": [], "y": []}, "there is no sample"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    write, tmp_path: Path, columns: dict, says: str
) -> None:
    write("a", **columns)
    with pytest.raises(FedmapError, match=rf"a\.parquet: {says}"):
        read_parquet(tmp_path)


def test_columns_are_found_by_name(write, tmp_path: Path) -> None:
    write("a", age=[1], income=[2], y=[0])
    write("b", income=[3], y=[0], age=[4])
    assert read_parquet(tmp_path).train_x.tolist() == [[1, 2], [4, 3]]


def test_all_clients_need_the_same_columns(write, tmp_path: Path) -> None:
    write("a", age=[1], income=[2], y=[0])
    write("b", income=[2], y=[0])
    with pytest.raises(
        FedmapError, match=r"b\.parquet: columns income, y but .*a\.parquet has age, income, y"
    ):
        read_parquet(tmp_path)


def test_one_file_has_a_column_of_clients(write, tmp_path: Path) -> None:
    write("all", site=["s10", "s2", "s10"], a=[1, 2, 3], y=[0, 1, 1])
    data = load(f"parquet:{tmp_path / 'all.parquet'}", client_column="site")
    assert data.client_names == ("s2", "s10")
    assert data.features == ("a",)
    assert data.train_x.flatten().tolist() == [2, 1, 3]
    assert data.origin["client_column"] == "site"


def test_one_file_of_images_has_a_column_of_clients(write, tmp_path: Path) -> None:
    x = np.arange(32, dtype=np.float32).reshape(2, 4, 4)
    write("all", x=x.tolist(), y=[0, 1], site=[7, 3], other=["p", "q"])
    data = read_parquet(tmp_path / "all.parquet", client_column="site", size=(2, 2))
    assert data.client_names == ("3", "7")
    assert data.train_x.shape == (2, 1, 2, 2)


def test_one_file_without_a_column_of_clients_is_nobodys(write, tmp_path: Path) -> None:
    write("all", a=[1, 2], y=[0, 1])
    assert read_parquet(tmp_path / "all.parquet").owner is None


def test_each_value_of_a_category_of_any_client_is_a_feature(write, tmp_path: Path) -> None:
    write("a", color=["red", "blue"], floor=[10, 2], f=[1, 2], y=[0, 1])
    write("b", color=["green"], floor=[2], f=[3], y=[0])
    data = load(f"parquet:{tmp_path}", categories=["color", "floor"])
    colors = ("color=blue", "color=green", "color=red")
    assert data.features == (*colors, "floor=2", "floor=10", "f")
    assert data.train_x.tolist() == [[0, 0, 1, 0, 1, 1], [1, 0, 0, 1, 0, 2], [0, 1, 0, 1, 0, 3]]


def test_a_table_is_read_like_the_same_table_in_a_csv_file(write, tmp_path: Path) -> None:
    rows = [("b", "red", 1.5, "no"), ("a", "blue", 2.0, "yes"), ("b", "red", 3.0, "no")]
    site, color, f, y = (list(column) for column in zip(*rows, strict=True))
    write("all", site=site, color=color, f=f, y=y)
    lines = [",".join(map(str, row)) for row in rows]
    (tmp_path / "all.csv").write_text("\n".join(["site,color,f,y", *lines]))
    one, other = (
        load(f"{kind}:{tmp_path / 'all'}.{kind}", client_column="site", categories=["color"])
        for kind in ("csv", "parquet")
    )
    assert one.features == other.features
    assert one.client_names == other.client_names
    assert one.classes == other.classes
    assert one.train_x.equal(other.train_x)
    assert one.train_y.equal(other.train_y)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"client_column": "site"}, "there is no column 'site'; .*; choose with --client-column"),
        ({"categories": ["c"]}, "there is no column 'c'; there are: x, y; choose with --categ"),
        ({"categories": ["x"]}, "column x has all features, so --categories can name none"),
    ],
)
def test_a_choice_of_columns_that_cannot_be_is_named(
    write, tmp_path: Path, options: dict, says: str
) -> None:
    write("a", x=[[1.0]], y=[0])
    with pytest.raises(FedmapError, match=rf"a\.parquet: {says}"):
        read_parquet(tmp_path / "a.parquet", **options)


def test_a_column_of_clients_is_refused_where_files_are_clients(write, tmp_path: Path) -> None:
    write("a", age=[1], y=[0])
    with pytest.raises(
        FedmapError, match=r"--client-column \(client_column in Python\) is for one"
    ):
        read_parquet(tmp_path, client_column="age")


def test_a_column_of_clients_has_no_gap(write, tmp_path: Path) -> None:
    write("all", site=["s", None], a=[1, 2], y=[0, 1])
    with pytest.raises(FedmapError, match=r"all\.parquet: column site has missing values"):
        read_parquet(tmp_path / "all.parquet", client_column="site")


def test_a_tiny_file_with_very_many_values_is_refused(
    write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("a", age=np.zeros(200_000), y=np.zeros(200_000, np.int64))
    assert (tmp_path / "a.parquet").stat().st_size < 20_000
    monkeypatch.setattr(parquet, "CAP", 1_000_000)
    with pytest.raises(
        FedmapError, match=r"a\.parquet: unpacks to 3,200,000 bytes; at most 1,000,000"
    ):
        read_parquet(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1"])
def test_what_is_not_parquet_is_one_clear_error(write, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(FedmapError, match=r"a\.parquet: not a parquet file"):
        read_parquet(tmp_path)
