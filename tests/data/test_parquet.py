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
        ({"x": [["a"]], "y": [0]}, "column x is string; features must be numbers"),
        ({"age": [1, None], "y": [0, 1]}, "column age has missing values"),
        ({"age": ["old"], "y": [0]}, "column age is string; features must be numbers"),
        ({"age": [1], "y": [None]}, "column y has missing labels"),
        ({"age": [1]}, "columns age; a label y"),
        ({"y": [1]}, "columns y; a label y"),
        ({"age": [], "y": []}, "there is no sample"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    write, tmp_path: Path, columns: dict, says: str
) -> None:
    write("a", **columns)
    with pytest.raises(FedmapError, match=rf"a\.parquet: {says}"):
        read_parquet(tmp_path)


def test_all_clients_need_the_same_columns(write, tmp_path: Path) -> None:
    write("a", age=[1], income=[2], y=[0])
    write("b", income=[2], age=[1], y=[0])
    with pytest.raises(
        FedmapError, match=r"b\.parquet: columns income, age but .*a\.parquet has age, income"
    ):
        read_parquet(tmp_path)


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
