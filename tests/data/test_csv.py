"""Tables in .csv files: clients, labels, categories, and one sentence for what cannot be used."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedmap.data import load, read_csv
from fedmap.errors import FedmapError
from fedmap.federation import partition


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Two branches and a test set."""
    folder = tmp_path / "bank"
    write(folder / "b10.csv", "age,income,y", "30,1.5,no", "40,2.5,yes")
    write(folder / "b2.csv", "income,age,y", "3.5,50,no")
    write(folder / "test.csv", "age,income,y", "60,4.5,yes")
    return folder


def test_one_file_is_one_client_and_columns_are_found_by_name(bank: Path) -> None:
    data = load(f"csv:{bank}")
    assert data.client_names == ("b2", "b10")
    assert data.classes == ("no", "yes")
    assert sorted(data.features) == ["age", "income"]
    assert data.train_x[:, data.features.index("age")].tolist() == [50, 30, 40]
    assert data.train_x[:, data.features.index("income")].tolist() == [3.5, 1.5, 2.5]
    assert data.train_y.tolist() == [0, 0, 1]
    assert data.test_y.tolist() == [1]


def test_one_file_has_a_column_of_clients(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", "site,a,y", "s10,1,0", "s2,2,1", "s10,3,1")
    data = load(f"csv:{file}", client_column="site")
    assert data.client_names == ("s2", "s10")
    assert data.features == ("a",)
    assert data.train_x.flatten().tolist() == [2, 1, 3]
    assert data.origin == {
        "data": f"csv:{file}", "label_column": "y", "client_column": "site", "categories": (),
        "scale": "standard",
    }  # fmt: skip


def test_one_file_without_a_column_of_clients_is_divided_among_ten(tmp_path: Path) -> None:
    rows = [f"{number},{number % 4}" for number in range(400)]
    data = load(f"csv:{write(tmp_path / 'all.csv', 'a,y', *rows)}")
    assert data.owner is None
    assert len(partition(data)) == 10


def test_the_label_may_be_any_column(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", "species,y", "cat,1", "dog,2")
    data = load(f"csv:{file}", label_column="species")
    assert data.classes == ("cat", "dog")
    assert data.features == ("y",)


def test_labels_that_are_numbers_everywhere_are_numbers(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "f,y", "1,2.0", "1,10")
    write(tmp_path / "b.csv", "f,y", "1,2")
    assert read_csv(tmp_path).classes == ("2", "10")


def test_labels_are_text_where_any_is(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "f,y", "1,2", "1,10")
    write(tmp_path / "b.csv", "f,y", "1,other")
    assert read_csv(tmp_path).classes == ("2", "10", "other")


def test_a_label_with_a_zero_before_it_is_a_name(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "f,y", "1,007", "1,0.5", "1,7")
    write(tmp_path / "b.csv", "f,y", "1,10")
    assert read_csv(tmp_path).classes == ("0.5", "007", "7", "10")
    write(tmp_path / "a.csv", "f,y", "1,0", "1,7")
    assert read_csv(tmp_path).classes == ("0", "7", "10")


def test_numbers_that_32_bits_cannot_tell_apart_are_refused_by_column(tmp_path: Path) -> None:
    times = [1_700_000_000_000 + 40_000 * k for k in range(4)]
    file = write(tmp_path / "all.csv", "f,t,y", *(f"{k},{t},{k % 2}" for k, t in enumerate(times)))
    with pytest.raises(FedmapError, match=r"column t differ by 4.5e\+04 and are"):
        read_csv(file)
    for first, step in ((0, 40_000), (1_700_000_000, 86_400), (times[0], 0)):
        lines = [f"{k},{first + step * k},{k % 2}" for k in range(4)]
        assert len(read_csv(write(file, "f,t,y", *lines)).train_y) == 4


def test_each_value_of_a_category_of_any_client_is_a_feature(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "color,f,y", "red,1,0", "blue,2,1")
    write(tmp_path / "b.csv", "color,f,y", "green,3,0")
    data = load(f"csv:{tmp_path}", categories=["color"])
    assert data.features == ("color=blue", "color=green", "color=red", "f")
    assert data.train_x.tolist() == [[0, 0, 1, 1], [1, 0, 0, 2], [0, 1, 0, 3]]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_may_be_divided_as_spreadsheets_do(tmp_path: Path, separator: str) -> None:
    lines = [line.replace(",", separator) for line in ("a,b,y", "1,2,no", '3,4,"yes"')]
    file = tmp_path / "all.csv"
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    data = read_csv(file)
    assert data.features == ("a", "b")
    assert data.classes == ("no", "yes")


def test_a_comma_is_a_decimal_one_where_semicolons_divide_the_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", "a;b;c;y", "0,5;-1,25 ;1,5 m;no", "7;2;a,b;yes")
    data = read_csv(file, categories=["c"])
    assert data.features == ("a", "b", "c=1,5 m", "c=a,b")
    assert data.train_x[:, :2].tolist() == [[0.5, -1.25], [7, 2]]
    with pytest.raises(FedmapError, match=r"such as '1\.000,5' in row 2"):
        read_csv(write(file, "a;y", "1.000,5;no"))
    with pytest.raises(FedmapError, match="such as '1,5' in row 2"):
        read_csv(write(file, "a\ty", "1,5\tno"))


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        (["a,y", "1,0", "red,1"], {}, "column a is no column of numbers, such as 'red' in row 3"),
        (["a,y", "1,0", ",1"], {}, "row 3 has no value in column a"),
        (["a,y", "1,0", "", "NaN,1"], {}, "row 4 has no value in column a"),
        (["a,y", "1,"], {}, "row 2 has no value in column y"),
        (["a,c,y", "1,,0"], {"categories": ["c"]}, "row 2 has no value in column c"),
        (["a,y", "1"], {}, "row 2 has 1 values, but there are 2 columns"),
        (["a,a,y", "1,2,3"], {}, "row 1 has the column a twice; each needs its own name"),
        (["a,,y", "1,2,3"], {}, "row 1 has no name for column 2; .*index=False"),
        (["a,y"], {}, "there is no row below its header"),
        ([""], {}, "there is no row below its header"),
        (["a,b", "1,2"], {}, "there is no column 'y'; there are: a, b; choose with --label"),
        (["a,y", "1,2"], {"client_column": "site"}, "there is no column 'site'; .* with --client"),
        (["a,y", "1,2"], {"categories": ["c"]}, "there is no column 'c'; .* choose with --categ"),
        (["y", "1"], {}, "there is no column of features"),
        (["a,y", "1,0.5"], {}, "labels of type float64, such as 0.5"),
        (["a,y", "inf,1"], {}, "row 2 has inf in column a; numbers up to"),
        (['a,y', '"1,2'], {}, "not a .csv file in UTF-8"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_named(
    lines: list[str], options: dict, says: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "all.csv", *lines)
    with pytest.raises(FedmapError, match=f"all.csv: {says}"):
        load(f"csv:{file}", **options)


def test_a_column_is_one_thing_only(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", "f,y", "1,0")
    for more in ({"client_column": "y"}, {"categories": ["y"]}, {"categories": ["f", "f"]}):
        with pytest.raises(FedmapError, match=r"column [fy] can be only one of label, client, cat"):
            load(f"csv:{file}", **more)


def test_a_path_that_is_not_there_is_named_with_the_nearest(tmp_path: Path) -> None:
    file = write(tmp_path / "sales.csv", "f,y", "1,0")
    with pytest.raises(FedmapError, match=r"slaes\.csv; did you mean sales\.csv\?"):
        load(f"csv:{tmp_path / 'slaes.csv'}", client_column="f")
    with pytest.raises(FedmapError, match=rf"is a path without its format; write csv:{file}"):
        load(str(file))
    with pytest.raises(FedmapError, match=rf"takes no --label .* as csv:{file}"):
        load(str(file), label_column="y")


def test_a_column_of_text_is_refused_with_the_flag_that_takes_it(tmp_path: Path) -> None:
    file = write(tmp_path / "all.csv", "color,y", "red,1")
    with pytest.raises(FedmapError, match="make features of its values with --categories color"):
        read_csv(file)


def test_what_is_no_text_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,y\n\xff\xfe\x00,1\n")
    with pytest.raises(FedmapError, match=r"a\.csv: not a \.csv file in UTF-8"):
        read_csv(tmp_path)


def test_files_with_other_columns_are_named(bank: Path) -> None:
    write(bank / "b3.csv", "age,y", "1,no")
    with pytest.raises(FedmapError, match=r"b3\.csv: columns age, y but .*b2\.csv has income, age"):
        read_csv(bank)


def test_a_column_of_clients_is_refused_where_files_are_clients(bank: Path) -> None:
    with pytest.raises(
        FedmapError, match=r"--client-column \(client_column in Python\) is for one"
    ):
        read_csv(bank, client_column="age")


def test_too_many_categories_are_refused(tmp_path: Path) -> None:
    rows = [f"name{number},{number % 2}" for number in range(1001)]
    file = write(tmp_path / "all.csv", "who,y", *rows)
    with pytest.raises(FedmapError, match="column who has 1001 different values; at most 1000"):
        read_csv(file, categories=["who"])


def test_a_hundred_thousand_rows_keep_their_values(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((100_000, 10)).astype(np.float32)
    rows = np.column_stack([x, np.arange(len(x)) % 3])
    head = ",".join([*(f"f{k}" for k in range(10)), "y"])
    np.savetxt(tmp_path / "all.csv", rows, fmt="%.9g", delimiter=",", header=head, comments="")
    data = read_csv(tmp_path / "all.csv")
    assert torch.equal(data.train_x, torch.from_numpy(x))
