import gzip
import io
import tarfile
from pathlib import Path

import pytest
from peak_memory import peak_memory

from fedmap.data.files import archive
from fedmap.errors import FedmapError


def member(name: str, content: bytes = b"x", **attributes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in attributes.items():
        setattr(info, key, value)
    return info, content


def write(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return path


def unpacked(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_and_folders_come_out_as_they_went_in(tmp_path: Path) -> None:
    folder = member("./set/empty", b"", type=tarfile.DIRTYPE)
    path = write(
        tmp_path / "a.tar.gz",
        folder,
        member("./set/a.bin", b"abc"),
        member("set/deep/b.bin", b"d" * 3_000_000),
    )
    archive.unpack(path, tmp_path / "out", 10_000_000)
    assert unpacked(tmp_path / "out") == {"set/a.bin": b"abc", "set/deep/b.bin": b"d" * 3_000_000}
    assert (tmp_path / "out" / "set" / "empty").is_dir()


@pytest.mark.parametrize(
    "bad",
    [
        member("../escaped"),
        member("set/../../escaped"),
        member("/escaped"),
        member("..\\escaped"),
        member("C:escaped"),
        member("link", b"", type=tarfile.SYMTYPE, linkname="../escaped"),
        member("link", b"", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member("fifo", b"", type=tarfile.FIFOTYPE),
        member("device", b"", type=tarfile.CHRTYPE),
        member("..", b"", type=tarfile.DIRTYPE),
    ],
    ids=lambda bad: f"{bad[0].name} {bad[0].type!r}",
)
def test_nothing_outside_the_folder_and_no_links_are_unpacked(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes]
) -> None:
    path = write(tmp_path / "a.tar.gz", bad)
    (tmp_path / "deep").mkdir()
    with pytest.raises(
        FedmapError, match=r"a\.tar\.gz: .* (would lie outside|is a link or a special file)"
    ):
        archive.unpack(path, tmp_path / "deep" / "out", 1000)
    assert not unpacked(tmp_path / "deep")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.tar.gz", "deep"]


def test_a_member_cannot_be_written_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar.gz", member("a", b"1"), member("a", b"2"))
    with pytest.raises(FedmapError, match="cannot be unpacked"):
        archive.unpack(path, tmp_path / "out", 1000)


def test_an_archive_stops_at_its_limit_of_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tar.gz", member("zeros", bytes(20_000_000)))
    assert path.stat().st_size < 100_000

    def unpack() -> None:
        with pytest.raises(FedmapError, match="unpacks to more than 1,000 bytes"):
            archive.unpack(path, tmp_path / "out", 1000)

    assert peak_memory(unpack) < 3_000_000


def test_an_archive_stops_at_its_limit_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 3)
    path = write(tmp_path / "a.tar.gz", *(member(f"f{i}", b"") for i in range(5)))
    with pytest.raises(FedmapError, match="or 3 files"):
        archive.unpack(path, tmp_path / "out", 1000)


def test_a_header_that_asks_for_all_memory_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 4_000_000_000
    (tmp_path / "a.tar.gz").write_bytes(
        gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(30_000_000))
    )

    def unpack() -> None:
        with pytest.raises(FedmapError, match="a header asks for"):
            archive.unpack(tmp_path / "a.tar.gz", tmp_path / "out", 1000)

    assert peak_memory(unpack) < 3_000_000


@pytest.mark.parametrize("cut", [0, 5, 100, -20, -1])
def test_an_archive_that_is_cut_off_is_one_clear_error(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "a.tar.gz", member("a", bytes(range(256)) * 100))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FedmapError, match=r"a\.tar\.gz: cannot be unpacked"):
        archive.unpack(path, tmp_path / "out", 100_000)
