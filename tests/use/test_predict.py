"""Answers about files: which model is asked, how files become samples, and what is shown."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from fedmap.data.own.arrays import resize
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.simulate.result import Result, personal_files
from fedmap.use.find import client_of, model_file
from fedmap.use.model import Notes, UsableModel
from fedmap.use.predict import Answers, predict
from fedmap.use.samples import MANY, read_samples

Finished = Callable[..., Result]  # the fixture in conftest.py
Fedmap = Callable[[str], Any]


def notes(shape: tuple[int, ...], pixels: bool = True) -> Notes:
    return Notes(
        version="1", method="fedavg", params={}, net="mlp", shape=shape, pixels=pixels,
        classes=("a", "b"), mean=(), std=(), observed=None,
    )  # fmt: skip


def read(path: Path, *about: Any) -> Tensor:
    (batch,) = read_samples([path], notes(*about))
    return batch.samples


def picture(path: Path, size: tuple[int, int], color: Any) -> Path:
    Image.new("RGB" if isinstance(color, tuple) else "L", size, color).save(path)
    return path


# Which model


def test_a_run_without_a_choice_means_its_global_model(finished: Finished) -> None:
    folder = finished("fedavg", "tiny", of="vectors").folder
    assert model_file(folder) == model_file(folder, None, True) == folder / "global.safetensors"


def test_a_client_is_found_by_number(finished: Finished) -> None:
    folder = finished("fedavg", "tiny", of="vectors").folder
    assert model_file(folder, "3") == folder / "personal/00003.safetensors"


@pytest.mark.parametrize("names", [("oslo", "bergen", "1"), ("1", "00000", "shop & co")])
def test_a_client_is_found_by_its_name_before_its_number_whatever_its_file_is_called(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    """A single name that cannot be a file's makes all files numbered."""
    (tmp_path / "personal").mkdir()
    (tmp_path / "done").touch()
    (tmp_path / "rounds.jsonl").touch()
    (tmp_path / "run.toml").write_text(f"[federation]\nclients = {json.dumps(names)}\n")
    (tmp_path / "final.json").write_text('{"personal_accuracy_per_client": [0.1, 0.2, 0.3]}')
    files = [tmp_path / name for name in personal_files(names, 3)]
    for file in files:
        file.touch()
    for number, name in enumerate(names):
        assert model_file(tmp_path, name) == files[number]
        assert client_of(tmp_path, files[number]) == number
        if str(number) not in names:
            assert model_file(tmp_path, str(number)) == files[number]
    files[2].unlink()
    with pytest.raises(FedmapError, match="has no client"):
        model_file(tmp_path, names[2])


def test_a_client_that_is_not_there_is_refused_with_those_that_are(finished: Finished) -> None:
    folder = finished("fedavg", "tiny", of="vectors").folder
    for client in ("6", "oslo", "../global"):
        with pytest.raises(FedmapError, match=f"no client '{client}'; there are: 0 to 5"):
            model_file(folder, client)


def test_a_run_without_a_global_model_asks_for_a_client(finished: Finished) -> None:
    with pytest.raises(FedmapError, match=r"has no global model; choose .* there are: 0 to 5"):
        model_file(finished("fedrep", "tiny-bn", of="vectors").folder)


def test_a_file_is_one_model_and_needs_no_choice(tmp_path: Path) -> None:
    assert model_file(tmp_path / "a.safetensors") == tmp_path / "a.safetensors"
    with pytest.raises(FedmapError, match="is not a run folder; --client and --global choose"):
        model_file(tmp_path / "a.safetensors", "3")
    with pytest.raises(FedmapError, match="exclude each other"):
        model_file(tmp_path, "3", True)


# From files to samples


def test_an_image_of_any_size_and_color_takes_the_shape_of_the_model(tmp_path: Path) -> None:
    gray = picture(tmp_path / "gray.png", (7, 9), 100)
    color = picture(tmp_path / "color.png", (50, 30), (10, 200, 30))
    assert torch.equal(read(gray, (3, 4, 5)), torch.full((1, 3, 4, 5), 100, dtype=torch.uint8))
    assert torch.equal(read(gray, (1, 4, 5)), torch.full((1, 1, 4, 5), 100, dtype=torch.uint8))
    assert read(color, (3, 4, 5))[0, :, 0, 0].tolist() == [10, 200, 30]
    light = round(0.299 * 10 + 0.587 * 200 + 0.114 * 30)
    assert torch.equal(read(color, (1, 4, 5)), torch.full((1, 1, 4, 5), light, dtype=torch.uint8))


def test_files_of_a_folder_come_in_their_natural_order_and_others_are_left_alone(
    tmp_path: Path,
) -> None:
    for name in ("b/2.png", "b/10.png", "a/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(tmp_path / name, (4, 4), 0)
    (tmp_path / "notes.txt").touch()
    (batch,) = read_samples([tmp_path], notes((1, 4, 4)))
    assert batch.names == [str(tmp_path / name) for name in ("a/1.png", "b/2.png", "b/10.png")]


def test_many_images_come_in_parts(tmp_path: Path) -> None:
    file = picture(tmp_path / "one.png", (2, 2), 0)
    parts = [len(part.names) for part in read_samples([file] * (MANY + 3), notes((1, 2, 2)))]
    assert parts == [MANY, 3]


def test_rows_of_a_csv_file_are_samples(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("\ufeffheight,width\n1.5,2\n\n-3e2,4\n")
    (batch,) = read_samples([file], notes((2,), False))
    assert torch.equal(batch.samples, torch.tensor([[1.5, 2], [-300, 4]]))
    assert batch.names == [f"{file} row 2", f"{file} row 4"]  # as a spreadsheet counts


def test_columns_are_found_by_their_names_whatever_stands_beside_them(tmp_path: Path) -> None:
    """Also the values of a text column that became features."""
    file = tmp_path / "rows.csv"
    file.write_text("site,color,width,height\noslo,red,2,1.5\nbergen,blue,4,-3\n")
    features = ("height", "color=blue", "color=red", "width")
    about = notes((4,), False).model_copy(update={"features": features})
    (batch,) = read_samples([file], about)
    assert torch.equal(batch.samples, torch.tensor([[1.5, 0, 1, 2], [-3, 1, 0, 4]]))


def test_rows_of_a_parquet_file_are_samples(tmp_path: Path) -> None:
    """Also lists in column x, and the features of a model that knows their names."""
    pyarrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    file, lists = tmp_path / "rows.parquet", tmp_path / "lists.parquet"
    cells = {"site": ["oslo", "bergen"], "color": ["red", "blue"], "old": [True, False]}
    files.write_table(pyarrow.table(cells | {"height": [1.5, -3]}), file)
    features = ("height", "color=blue", "color=red", "old")
    about = notes((4,), False).model_copy(update={"features": features})
    (batch,) = read_samples([tmp_path], about)
    assert torch.equal(batch.samples, torch.tensor([[1.5, 0, 1, 1], [-3, 1, 0, 0]]))
    assert batch.names == [f"{file} row 1", f"{file} row 2"]
    files.write_table(pyarrow.table({"x": [[[1.0, 2.0]], [[3.0, 4.0]]], "y": [0, 1]}), lists)
    (batch,) = read_samples([lists], notes((1, 2), False))
    assert torch.equal(batch.samples, torch.tensor([[[1.0, 2]], [[3, 4]]]))
    files.write_table(pyarrow.table(cells | {"height": [1, 2], "old": ["yes", "no"]}), file)
    with pytest.raises(FedmapError, match="column old is string, and features are numbers; only"):
        list(read_samples([file], about))
    with pytest.raises(FedmapError, match="there is no column height, color, old, which the model"):
        list(read_samples([lists], about))


def test_a_column_that_the_model_needs_and_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("height,site\n1,oslo\n")
    about = notes((2,), False).model_copy(update={"features": ("height", "width")})
    with pytest.raises(FedmapError, match=r"no column width, which the .* there are: height"):
        list(read_samples([tmp_path / "rows.csv"], about))
    # as many columns as the model has features, of which none is known
    (tmp_path / "rows.csv").write_text("age,site\n1,2\n")
    with pytest.raises(FedmapError, match="there is no column height, width, which"):
        list(read_samples([tmp_path / "rows.csv"], about))


def test_a_value_that_no_sample_had_in_training_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("color,height\nred,1\n\nRed,2\n")
    features = ("color=blue", "color=red", "height")
    about = notes((3,), False).model_copy(update={"features": features})
    with pytest.raises(FedmapError, match=r"row 4 has 'Red' in column color, .* were: blue, red"):
        list(read_samples([tmp_path / "rows.csv"], about))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_is_read_as_for_training(separator: str, tmp_path: Path) -> None:
    """Spaces around a cell do not count, and columns are divided as there."""
    lines = ["height , color ", "1, red", " 2,blue", "3,red "]
    (tmp_path / "rows.csv").write_text("\n".join(lines).replace(",", separator))
    features = ("color=blue", "color=red", "height")
    about = notes((3,), False).model_copy(update={"features": features})
    (batch,) = read_samples([tmp_path / "rows.csv"], about)
    assert batch.samples.tolist() == [[0, 1, 1], [1, 0, 2], [0, 1, 3]]
    (tmp_path / "rows.csv").write_text("height,color\n1,\n")
    with pytest.raises(FedmapError, match="row 2 has no value in column color"):
        list(read_samples([tmp_path / "rows.csv"], about))


def test_pixels_of_an_npz_file_take_the_size_and_the_channels_of_the_model(tmp_path: Path) -> None:
    gray = np.arange(2 * 14 * 14, dtype=np.uint8).reshape(2, 14, 14, 1)
    np.savez(tmp_path / "x.npz", x=gray)
    wanted = resize(torch.from_numpy(gray).permute(0, 3, 1, 2), (16, 16)).float()
    assert torch.equal(read(tmp_path / "x.npz", (1, 16, 16)), wanted)
    assert torch.equal(read(tmp_path / "x.npz", (3, 16, 16)), wanted.expand(2, 3, 16, 16))
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 3, 14, 14), np.uint8))
    with pytest.raises(FedmapError, match=r"samples of shape \(3, 14, 14\); the model"):
        read(tmp_path / "x.npz", (1, 16, 16))


@pytest.mark.parametrize("given", [(5, 1, 3, 4), (5, 3, 4), (5, 3, 4, 1)])
def test_images_of_an_npz_file_may_have_their_channel_first_last_or_not(
    given: tuple[int, ...], tmp_path: Path
) -> None:
    x = np.arange(60, dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x=x.reshape(given))
    expected = torch.from_numpy(x).float().view(5, 1, 3, 4)
    assert torch.equal(read(tmp_path / "x.npz", (1, 3, 4)), expected)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1,2\n3,4\n", "its first line should name the columns"),
        ("a,b\n", "there is no row below its header"),
        ("", "there is no row below its header"),
        ("a,b\n1,2\n3\n", "row 3 has 1 values, but there are 2 columns"),
        ("a,b\n1,red\n", "column b is no column of numbers, such as 'red' in row 2; only numbers"),
        ("a,b,c\n1,2,3\n", r"samples of shape \(3,\); the model takes \(2,\)"),
        ("a,b\n1,2\n1,nan\n", "row 3 has no value in column b"),
        ("a,b\n1,2\n1,1e39\n", "row 3 has 1e39 in column b; numbers up to"),
    ],
)
def test_a_csv_file_that_does_not_fit_is_refused(text: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(FedmapError, match=sentence):
        read(tmp_path / "rows.csv", (2,), False)


def test_what_cannot_be_read_is_refused_with_its_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "y.npz", y=np.ones(3))
    (tmp_path / "broken.npz").write_text("hello")
    for path, sentence in {
        "y.npz": "has no array x; there are: y",
        "broken.npz": "not an .npz file of plain arrays",
        "nothing": "there is no file or folder",
    }.items():
        with pytest.raises(FedmapError, match=f"{path}.*{sentence}|{sentence}.*{path}"):
            read(tmp_path / path, (3,), False)
    picture(tmp_path / "image.png", (2, 2), 0)
    with pytest.raises(FedmapError, match=r"image.png: the model takes values of shape \(3,\)"):
        read(tmp_path / "image.png", (3,), False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FedmapError, match=r"no file in this folder that ends in .npz .csv"):
        read(tmp_path / "empty", (3,), False)


# What is shown


def test_the_table_has_the_likeliest_class_and_the_second() -> None:
    shares = torch.tensor([[0.1, 0.7, 0.2], [0.0, 0.0, 1.0]])
    answers = Answers(["x", "y"], ("cat", "dog", "gull"), shares)
    assert answers.table().lines == [
        ["x", "dog", "70.0 %", "gull 20.0 %"],
        ["y", "gull", "100.0 %", "cat 0.0 %"],
    ]
    assert answers.all_classes().head == ["file", "class", "cat", "dog", "gull"]
    assert answers.all_classes().lines[0] == ["x", "dog", "0.100000", "0.700000", "0.200000"]


def test_predict_asks_the_model_about_the_very_pixels(
    finished: Finished, pictures: Federation, tmp_path: Path
) -> None:
    x = pictures.dataset.test_x[:5]
    for number, sample in enumerate(x):
        Image.fromarray(sample[0].numpy()).save(tmp_path / f"{number}.png")
    model = UsableModel.read(finished("fedavg", "lenet").folder / "global.safetensors")
    assert torch.equal(predict(model, [tmp_path]).probabilities, model.probabilities(x))


def test_the_command_needs_the_run_folder_and_files_only(
    fedmap: Fedmap, finished: Finished, pictures: Federation, tmp_path: Path
) -> None:
    run = finished("map", "lenet", preset="own")
    np.savez(tmp_path / "new.npz", x=pictures.dataset.test_x[:3])
    done = fedmap(f"predict {run.folder} new.npz --client 2 --csv out.csv")
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "out.csv") as file:
        rows = list(csv.DictReader(file))
    with torch.no_grad():
        x = pictures.dataset.normalize(pictures.dataset.test_x[:3])
        expected = run.personal_model(2)(x).softmax(1)
    names = list(pictures.dataset.classes)
    found = torch.tensor([[float(row[name]) for name in names] for row in rows])
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    likeliest = [names[number] for number in expected.argmax(1)]
    assert [row["class"] for row in rows] == likeliest
    assert f"| new.npz row 1 | {likeliest[0]} | {100 * float(expected[0].max()):.1f} % |" in (
        done.stdout
    )


def test_the_command_says_what_is_wrong_in_one_sentence(fedmap: Fedmap, tmp_path: Path) -> None:
    done = fedmap("predict nothing.safetensors x.png")
    assert (done.returncode, done.stderr) == (1, "fedmap: there is no file nothing.safetensors\n")


def test_a_table_that_cannot_be_written_is_named(
    fedmap: Fedmap, finished: Finished, pictures: Federation, tmp_path: Path
) -> None:
    np.savez(tmp_path / "new.npz", x=pictures.dataset.test_x[:3])
    done = fedmap(f"predict {finished('fedavg', 'lenet').folder} new.npz --csv nowhere/out.csv")
    assert done.stderr == "fedmap: cannot write nowhere/out.csv: No such file or directory\n"
