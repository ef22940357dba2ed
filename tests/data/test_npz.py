import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from peak_memory import peak_memory

from fedmap.data import load, read_npz
from fedmap.data.own import npz
from fedmap.data.own.arrays import Pair
from fedmap.errors import FedmapError


def write(folder: Path, **clients: Pair) -> Path:
    folder.mkdir(exist_ok=True)
    for name, (x, y) in clients.items():
        np.savez(folder / f"{name}.npz", x=x, y=y)
    return folder


def test_one_file_is_one_client_and_test_is_the_test_set(tmp_path: Path) -> None:
    vectors = np.arange(12.0).reshape(4, 3)
    folder = write(
        tmp_path / "bank",
        b10=(vectors, list("xyxy")),
        b2=(vectors[:1], ["z"]),
        test=(vectors[:2], ["x", "y"]),
    )
    data = load(f"npz:{folder}")
    assert data.name == "npz:bank"
    assert data.client_names == ("b2", "b10")
    assert data.classes == ("x", "y", "z")
    assert data.train_y.tolist() == [2, 0, 1, 0, 1]
    assert data.test_y.tolist() == [0, 1]
    assert data.shape == (3,)


def test_endings_and_the_test_set_may_be_in_capitals(tmp_path: Path) -> None:
    folder = write(tmp_path, a=(np.zeros((2, 3)), [0, 1]), Test=(np.zeros((1, 3)), [0]))
    (folder / "b.NPZ").write_bytes((folder / "a.npz").read_bytes())
    data = read_npz(folder)
    assert (data.client_names, len(data.train_y), len(data.test_y)) == (("a", "b"), 4, 1)
    (folder / "a.Npz").write_bytes((folder / "a.npz").read_bytes())
    with pytest.raises(
        FedmapError, match=r"a\.(npz|Npz) and a\.(npz|Npz) are of one name; keep one"
    ):
        read_npz(folder)


def test_images_of_different_sizes_get_the_wanted_size(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        a=(np.zeros((2, 9, 9), np.uint8), [0, 1]),
        b=(np.zeros((2, 12, 9), np.uint8), [0, 1]),
    )
    assert read_npz(folder, size=(10, 11)).shape == (1, 10, 11)


def test_images_of_one_size_keep_it_unless_another_is_wanted(tmp_path: Path) -> None:
    folder = write(tmp_path, a=(np.zeros((2, 9, 9), np.uint8), [0, 1]))
    assert load(f"npz:{folder}").shape == (1, 9, 9)
    assert load(f"npz:{folder}", size=12).shape == (1, 12, 12)


def test_the_labels_may_have_another_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3)), species=["cat", "dog"])
    assert load(f"npz:{tmp_path}", label_column="species").classes == ("cat", "dog")


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.array([[1.0, np.nan]]), [0], "sample 0 has a value that is not finite"),
        (np.zeros((0, 3)), [], "there is no sample"),
        (np.array([[1, None]], object), [0], "not an .npz file of plain arrays"),
        (np.zeros((2, 2)), [0], "2 samples but labels of shape"),
    ],
)
@pytest.mark.parametrize("name", ["b", "test"])
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, x: npt.ArrayLike, y: npt.ArrayLike, says: str, name: str
) -> None:
    write(tmp_path, a=(np.zeros((1, 2)), [0]), **{name: (x, y)})
    with pytest.raises(FedmapError, match=rf"{name}\.npz: {says}"):
        read_npz(tmp_path)


def test_missing_arrays_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.zeros(3), y=np.zeros(3))
    with pytest.raises(
        FedmapError, match=r"a\.npz: has no array x; there are: features, y; --label"
    ):
        read_npz(tmp_path)


def test_an_empty_or_missing_folder_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="no client's"):
        read_npz(tmp_path)
    with pytest.raises(FedmapError, match="there is no file or folder"):
        read_npz(tmp_path / "nowhere")


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return buffer.getvalue()


def array(values: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values))
    return buffer.getvalue()


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.mkdir, (self.path,)


def test_a_pickle_in_the_archive_is_not_loaded(tmp_path: Path) -> None:
    header = array(np.zeros(1)).replace(b"'<f8'", b"'|O' ")[:128]
    (tmp_path / "a.npz").write_bytes(
        archive(x=header + pickle.dumps(Runs(tmp_path / "ran")), y=array([0]))
    )
    with pytest.raises(FedmapError, match="plain arrays"):
        read_npz(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_zip_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "CAP", 10_000_000)
    (tmp_path / "a.npz").write_bytes(
        archive(x=array(np.zeros((5000, 500))), y=array(np.zeros(5000)))
    )

    def read() -> None:
        with pytest.raises(
            FedmapError, match=r"a\.npz: unpacks to 20,040,256 bytes; at most 10,000,000"
        ):
            read_npz(tmp_path)

    assert peak_memory(read) < 2_000_000


def test_an_array_that_promises_more_than_the_archive_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(
        archive(
            x=array(np.zeros((3, 2))).replace(b"(3, 2), }  ", b"(3, 200), }"), y=array([0, 1, 2])
        )
    )
    with pytest.raises(FedmapError, match=r"a\.npz: not an \.npz file"):
        read_npz(tmp_path)
