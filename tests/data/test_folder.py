import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedmap.data import load, read_folder
from fedmap.data.files import images
from fedmap.errors import FedmapError


def save(
    path: Path,
    value: int | tuple[int, ...] = 100,
    size: tuple[int, int] = (32, 32),
    mode: str = "L",
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)
    return path


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    """Two clients with one class in common, one with a class of its own."""
    root = tmp_path / "hospitals"
    save(root / "site10" / "healthy" / "1.png", 10)
    save(root / "site10" / "healthy" / "10.png", 12)
    save(root / "site10" / "healthy" / "2.jpg", 11)
    save(root / "site2" / "healthy" / "a.bmp", 20)
    save(root / "site2" / "cyst" / "b.tiff", 30)
    return root


def test_folders_are_clients_and_sub_folders_are_classes(hospitals: Path) -> None:
    data = load(f"folder:{hospitals}")
    assert data.name == "folder:hospitals"
    assert data.client_names == ("site2", "site10")
    assert data.classes == ("cyst", "healthy")
    assert data.owner is not None
    assert data.owner.tolist() == [0, 0, 1, 1, 1]
    assert data.train_y.tolist() == [0, 1, 1, 1, 1]
    assert data.train_x.float().mean((1, 2, 3)).tolist() == [30, 20, 10, 11, 12]
    assert data.test_x.shape == (0, 1, 32, 32)
    assert data.defaults.clients == 2


def test_a_folder_named_test_is_the_test_set(hospitals: Path) -> None:
    save(hospitals / "test" / "cyst" / "x.png", 77)
    data = read_folder(hospitals)
    assert data.client_names == ("site2", "site10")
    assert data.test_x.unique().tolist() == [77]
    assert data.test_y.tolist() == [0]


def test_folders_of_classes_alone_have_no_owner_yet(tmp_path: Path) -> None:
    save(tmp_path / "healthy" / "1.png", 10)
    save(tmp_path / "cyst" / "1.png", 20)
    save(tmp_path / "test" / "cyst" / "1.png", 30)
    data = read_folder(tmp_path)
    assert data.classes == ("cyst", "healthy")
    assert data.owner is None
    assert data.client_names == ()
    assert data.train_x.float().mean((1, 2, 3)).tolist() == [20, 10]
    assert data.test_x.unique().tolist() == [30]


def test_if_any_image_is_in_color_all_are(hospitals: Path) -> None:
    save(hospitals / "site2" / "cyst" / "c.png", (1, 2, 3), mode="RGB")
    data = read_folder(hospitals)
    assert data.shape == (3, 32, 32)
    assert len(data.mean) == 3
    assert data.train_x[1].flatten(1).float().mean(1).tolist() == [1, 2, 3]
    assert data.train_x[0].unique().tolist() == [30]


def test_images_of_any_size_get_the_wanted_one(hospitals: Path) -> None:
    save(hospitals / "site2" / "cyst" / "c.png", 40, size=(100, 7))
    assert read_folder(hospitals).shape == (1, 32, 32)
    assert read_folder(hospitals, size=(16, 24)).shape == (1, 16, 24)


def test_the_second_time_no_image_is_decoded_unless_one_changed(
    hospitals: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read_folder(hospitals)
    with monkeypatch.context() as patch:
        patch.setattr(images, "read", lambda *_: pytest.fail("decoded again"))
        assert np.array_equal(read_folder(hospitals).train_x, first.train_x)
    save(hospitals / "site2" / "cyst" / "b.tiff", 31)
    os.utime(hospitals / "site2" / "cyst" / "b.tiff", ns=(0, 1))
    assert read_folder(hospitals).train_x[0].unique().tolist() == [31]


def test_hidden_files_and_file_managers_litter_are_ignored(hospitals: Path) -> None:
    for name in (
        ".DS_Store",
        "site2/.hidden.png",
        "site2/cyst/Thumbs.db",
        "README.txt",
        "site2/notes.txt",
    ):
        (hospitals / name).write_text("no image")
    (hospitals / "__MACOSX").mkdir()
    assert len(read_folder(hospitals).train_y) == 5


def test_an_empty_class_folder_means_that_the_client_misses_the_class(hospitals: Path) -> None:
    (hospitals / "site10" / "cyst").mkdir()
    assert len(read_folder(hospitals).train_y) == 5


def test_a_corrupt_image_is_named(hospitals: Path) -> None:
    path = hospitals / "site2" / "cyst" / "broken.png"
    path.write_bytes(save(path).read_bytes()[:60])
    with pytest.raises(FedmapError, match=r"site2/cyst/broken\.png: not an image that can be read"):
        read_folder(hospitals)


def test_what_is_no_image_in_a_class_folder_is_named(hospitals: Path) -> None:
    (hospitals / "site2" / "cyst" / "scan.dcm").write_bytes(b"?")
    with pytest.raises(
        FedmapError, match=r"scan\.dcm: not an image file; a class's folder may hold \.png"
    ):
        read_folder(hospitals)


def test_a_folder_below_a_class_is_named(hospitals: Path) -> None:
    (hospitals / "site2" / "cyst" / "more").mkdir()
    with pytest.raises(FedmapError, match="cyst/more: not an image file"):
        read_folder(hospitals)


@pytest.mark.parametrize("where", ["stray.png", "site2/stray.png"])
def test_an_image_in_the_wrong_place_is_named(hospitals: Path, where: str) -> None:
    save(hospitals / where)
    with pytest.raises(FedmapError, match=r"stray\.png: an image where a folder for each"):
        read_folder(hospitals)


def test_an_empty_folder_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="there is no client's folder here"):
        read_folder(tmp_path)


def test_only_a_test_set_is_not_enough(tmp_path: Path) -> None:
    save(tmp_path / "test" / "cyst" / "x.png")
    with pytest.raises(FedmapError, match="there is no client's folder here"):
        read_folder(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="nowhere: this folder cannot be read"):
        read_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["site3", "test"])
def test_a_client_or_test_set_without_images_is_named(hospitals: Path, name: str) -> None:
    (hospitals / name / "cyst").mkdir(parents=True)
    with pytest.raises(FedmapError, match=f"{name}: there is no image in this folder"):
        read_folder(hospitals)


def test_a_class_that_no_client_has_is_named(hospitals: Path) -> None:
    save(hospitals / "test" / "stone" / "x.png")
    with pytest.raises(FedmapError, match="no client has an image of class stone"):
        read_folder(hospitals)


@pytest.mark.parametrize("name", ["test", "val", "valid", "validation", "Test"])
def test_train_and_test_are_splits_and_no_clients(tmp_path: Path, name: str) -> None:
    save(tmp_path / "train" / "cyst" / "1.png", 10)
    save(tmp_path / "train" / "healthy" / "1.png", 20)
    save(tmp_path / name / "cyst" / "1.png", 30)
    data = read_folder(tmp_path)
    assert data.owner is None
    assert data.classes == ("cyst", "healthy")
    assert data.train_x.float().mean((1, 2, 3)).tolist() == [10, 20]
    assert data.test_x.unique().tolist() == [30]


def test_clients_may_lie_below_train(tmp_path: Path) -> None:
    save(tmp_path / "train" / "oslo" / "cyst" / "1.png")
    save(tmp_path / "train" / "bergen" / "healthy" / "1.png")
    save(tmp_path / "val" / "cyst" / "1.png")
    data = read_folder(tmp_path)
    assert data.client_names == ("bergen", "oslo")
    assert len(data.test_y) == 1


def test_a_validation_set_beside_a_test_set_is_not_used_and_one_is_told(
    hospitals: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(hospitals / "test" / "cyst" / "x.png", 77)
    save(hospitals / "val" / "cyst" / "x.png", 78)
    data = read_folder(hospitals)
    assert data.client_names == ("site2", "site10")
    assert data.test_x.unique().tolist() == [77]
    assert f"{hospitals / 'val'} is not used: {hospitals / 'test'} is the test set" in caplog.text


def test_a_client_beside_train_is_refused(hospitals: Path) -> None:
    save(hospitals / "train" / "cyst" / "x.png")
    with pytest.raises(FedmapError, match=r"site2: lies beside train, which is a split"):
        read_folder(hospitals)


def test_classes_that_differ_only_in_case_are_pointed_out(
    hospitals: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert not caplog.text
    save(hospitals / "site10" / "Cyst" / "x.png")
    assert read_folder(hospitals).classes == ("Cyst", "cyst", "healthy")
    assert "classes Cyst and cyst differ only in case" in caplog.text


def test_a_list_says_who_has_which_image(tmp_path: Path) -> None:
    for number in range(4):
        save(tmp_path / "scans" / f"{number}.png", 10 * number)
    (tmp_path / "clients.csv").write_text(
        "path,client,label\nscans/3.png,s10,cyst\nscans/1.png,s2,healthy\n"
        "scans/2.png,s2,cyst\nscans/0.png,test,cyst\n"
    )
    data = read_folder(tmp_path)
    assert data.client_names == ("s2", "s10")
    assert data.classes == ("cyst", "healthy")
    assert data.train_x.float().mean((1, 2, 3)).tolist() == [20, 10, 30]
    assert data.train_y.tolist() == [0, 1, 0]
    assert data.test_x.unique().tolist() == [0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("path,client,label\nnowhere.png,a,b\n", r"row 2 names nowhere\.png, which is not there"),
        ("path,client\nx.png,a\n", "there is no column 'label'"),
    ],
)
def test_a_list_that_cannot_be_used_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "clients.csv").write_text(text)
    with pytest.raises(FedmapError, match=rf"clients\.csv: {says}"):
        read_folder(tmp_path)


def test_the_size_of_the_images_leads_back_to_them(hospitals: Path) -> None:
    assert load(f"folder:{hospitals}").origin == {"data": f"folder:{hospitals}", "size": 32}
    assert load(f"folder:{hospitals}", size=8).origin["size"] == 8
    assert load(f"folder:{hospitals}", size=8).shape == (1, 8, 8)
