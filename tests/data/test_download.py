import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from fedmap.data import download
from fedmap.data.download import fetch, get
from fedmap.data.locate import cache_dir
from fedmap.data.official.base import OFFICIAL, OfficialSet, RemoteFile
from fedmap.data.official.families.mnist import MnistLike
from fedmap.errors import FedmapError


class Server:
    """Serves byte strings on this machine, and can break off, ignore ranges or lie."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.break_after: int | None = None
        self.shift = 0  # starts at another byte than asked for
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = outer.files.get(self.path.lstrip("/"))
                wanted = self.headers.get("Range")
                outer.asked.append(wanted)
                if content is None:
                    self.send_error(404)
                    return
                status, start, size = 200, 0, len(content)
                if wanted and outer.ranges:
                    status = 206
                    start = int(wanted.removeprefix("bytes=").removesuffix("-")) + outer.shift
                self.send_response(status)
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
                self.send_header("Content-Length", str(size - start))
                self.end_headers()
                self.wfile.write(content[start:][: outer.break_after])

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})

    def remote(self, name: str, content: bytes, md5: str = "") -> RemoteFile:
        self.files[name] = content
        return RemoteFile(
            f"http://127.0.0.1:{self.http.server_port}/{name}",
            md5 or hashlib.md5(content).hexdigest(),
            len(content),
        )


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    server.thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    server.thread.join()


CONTENT = bytes(range(256)) * 4000  # about a megabyte


def test_a_file_arrives_whole_and_progress_is_reported(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    fetch(server.remote("a.gz", CONTENT), tmp_path / "a.gz", lambda *step: seen.append(step))
    assert (tmp_path / "a.gz").read_bytes() == CONTENT
    assert seen[-1] == ("a.gz", len(CONTENT), len(CONTENT))
    assert [path.name for path in tmp_path.iterdir()] == ["a.gz"]


def test_a_broken_download_leaves_no_file_and_goes_on_where_it_stopped(
    server: Server, tmp_path: Path
) -> None:
    remote = server.remote("a.gz", CONTENT)
    server.break_after = 300_000
    with pytest.raises(
        FedmapError,
        match=r"stopped after 300,000 of 1,024,000 bytes; the same command goes on from there",
    ):
        fetch(remote, tmp_path / "a.gz")
    assert not (tmp_path / "a.gz").exists()
    server.break_after = None
    fetch(remote, tmp_path / "a.gz")
    assert server.asked == [None, "bytes=300000-"]
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.gz", CONTENT)
    (tmp_path / "a.gz.part").write_bytes(b"something else")
    server.ranges = False
    fetch(remote, tmp_path / "a.gz")
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_complete_part_is_only_checked(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.gz", CONTENT)
    (tmp_path / "a.gz.part").write_bytes(CONTENT)
    fetch(remote, tmp_path / "a.gz")
    assert server.asked == []
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_another_part_than_asked_for_is_refused(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.gz", CONTENT)
    (tmp_path / "a.gz.part").write_bytes(CONTENT[:1000])
    server.shift = 7
    with pytest.raises(FedmapError, match="sent another part than asked for"):
        fetch(remote, tmp_path / "a.gz")


@pytest.mark.parametrize("part", [b"", CONTENT[:5], b"wrong", CONTENT + b"longer"])
def test_wrong_content_is_removed_and_never_gets_the_final_name(
    server: Server, tmp_path: Path, part: bytes
) -> None:
    remote = server.remote("a.gz", CONTENT, md5="0" * 32)
    (tmp_path / "a.gz.part").write_bytes(part)
    with pytest.raises(FedmapError, match="not the official file"):
        fetch(remote, tmp_path / "a.gz")
    assert list(tmp_path.iterdir()) == []


def test_no_more_bytes_than_announced_are_taken(server: Server, tmp_path: Path) -> None:
    remote = server.remote("a.gz", CONTENT)
    server.files["a.gz"] = CONTENT + CONTENT
    fetch(remote, tmp_path / "a.gz")
    assert (tmp_path / "a.gz").read_bytes() == CONTENT


def test_a_server_that_says_no_and_one_that_is_not_there_are_clear_errors(
    server: Server, tmp_path: Path
) -> None:
    remote = server.remote("a.gz", CONTENT)
    server.files.clear()
    with pytest.raises(FedmapError, match="the server answers 404"):
        fetch(remote, tmp_path / "a.gz")
    with pytest.raises(FedmapError, match="cannot be reached"):
        fetch(RemoteFile("http://127.0.0.1:9/a.gz", "", 1), tmp_path / "a.gz")
    with pytest.raises(FedmapError, match="only http and https"):
        fetch(RemoteFile("file:///etc/passwd", "", 1), tmp_path / "a.gz")


def tar(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Toy(MnistLike):
    """A set whose archive or files are on the test's server."""

    name = "toy"
    folders = ("toy-bin", "toy")
    marks = ("train.bin",)

    def __init__(self, *remote_files: RemoteFile, unpacked_limit: int = 0) -> None:
        self.remote_files = remote_files
        self.unpacked_limit = unpacked_limit


Archive = Callable[..., None]


@pytest.fixture
def archive(server: Server, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """Puts an archive with this content on the server, as that of the set toy."""

    def put(**files: bytes) -> None:
        toy = Toy(server.remote("set.tar.gz", tar(**files)), unpacked_limit=10_000)
        monkeypatch.setitem(OFFICIAL, "toy", toy)

    return put


@pytest.mark.parametrize("prefix", ["", "some-folder__"])
def test_an_archive_is_unpacked_into_the_sets_folder(
    archive: Archive, tmp_path: Path, prefix: str
) -> None:
    archive(**{f"{prefix}train_dot_bin": b"abc", f"{prefix}more__readme": b"hello"})
    folder = get("toy", tmp_path / "new")
    assert folder == tmp_path / "new" / "toy-bin"
    assert (folder / "train.bin").read_bytes() == b"abc"
    assert (folder / "more" / "readme").read_bytes() == b"hello"
    assert [path.name for path in folder.parent.iterdir()] == ["toy-bin"]


def test_what_is_there_is_not_downloaded_again(
    archive: Archive, server: Server, tmp_path: Path
) -> None:
    archive(train_dot_bin=b"abc")
    assert get("toy", tmp_path) == get("toy", tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "files", [{"other": b"x"}, {"..__escaped": b"x"}, {"train_dot_bin": bytes(20_000)}]
)
def test_a_bad_archive_leaves_no_folder(
    archive: Archive, tmp_path: Path, files: dict[str, bytes]
) -> None:
    archive(**files)
    with pytest.raises(FedmapError, match=r"set\.tar\.gz"):
        get("toy", tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["set.tar.gz"]


def test_single_files_appear_together_at_the_end(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = server.remote("train.bin", b"images"), server.remote("labels.gz", b"labels")
    monkeypatch.setitem(OFFICIAL, "toy", Toy(images, labels))
    del server.files["labels.gz"]
    with pytest.raises(FedmapError, match="404"):
        get("toy", tmp_path)
    assert not (tmp_path / "toy-bin").exists()
    server.files["labels.gz"] = b"labels"
    folder = get("toy", tmp_path)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "train.bin": b"images",
        "labels.gz": b"labels",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["toy-bin"]
    assert len(server.asked) == 3  # the first file came only once


def test_without_a_folder_the_set_goes_to_fedmap_data_or_the_cache(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(train_dot_bin=b"abc")
    assert get("toy") == cache_dir() / "toy-bin"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    monkeypatch.setenv("FEDMAP_DATA", str(tmp_path / "variable"))
    assert get("toy") == tmp_path / "variable" / "toy-bin"


def test_a_folder_that_cannot_be_written_is_named(archive: Archive, tmp_path: Path) -> None:
    archive(train_dot_bin=b"abc")
    (tmp_path / "file").touch()
    with pytest.raises(FedmapError, match=r"toy cannot be put into .*file"):
        get("toy", tmp_path / "file" / "below")


def test_what_cannot_be_downloaded_says_why() -> None:
    with pytest.raises(FedmapError, match="LEAF makes it"):
        get("femnist")
    with pytest.raises(
        FedmapError, match="nothing to download for 'fashion-mini'; did you mean 'fashion-mnist'"
    ):
        get("fashion-mini")


def test_a_connection_that_falls_silent_is_a_clear_error(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = server.remote("a.gz", CONTENT)

    def silent(*_: object) -> bytes:
        raise TimeoutError("timed out")

    monkeypatch.setattr("http.client.HTTPResponse.read", silent)
    with pytest.raises(FedmapError, match=r"stopped after 0 of .*timed out"):
        download.fetch(remote, tmp_path / "a.gz")


@pytest.mark.parametrize("official", OFFICIAL.values(), ids=lambda official: official.name)
def test_every_download_has_an_address_a_size_and_a_sum(official: OfficialSet) -> None:
    for remote in official.remote_files:
        assert remote.url.startswith("http")
        assert len(remote.md5) == 32
        assert remote.size > 4000


@pytest.mark.parametrize("official", OFFICIAL.values(), ids=lambda official: official.name)
def test_what_is_unpacked_is_one_archive(official: OfficialSet) -> None:
    archives = [remote for remote in official.remote_files if remote.name.endswith(".tar.gz")]
    assert len(archives) == (1 if official.unpacked_limit else 0)
