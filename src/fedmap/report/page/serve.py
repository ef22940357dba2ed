"""The page on this machine's loopback, made anew whenever there is something new in its folders."""

import hashlib
import os
import threading
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.report.page.build import Contents, Live, library, page, sentence_page
from fedmap.report.page.found import run_folders, shown
from fedmap.simulate.look import state_of

HOST = "127.0.0.1"
MILLISECONDS = 3000  # after which the browser looks again
WATCHED = ("run.toml", "rounds.jsonl", "done")


class LivePage:
    """The page of some folders as they are now; made again only where something changed."""

    def __init__(
        self, paths: Sequence[Path], baseline: str | None = None, every: int = MILLISECONDS
    ) -> None:
        self._paths, self._baseline, self._every = paths, baseline, every
        self._lock = threading.Lock()  # several browsers may ask at the same time
        self._made = ("", b"")

    def version(self) -> str:
        """Another one for each state of the runs."""
        seen = hashlib.sha256()
        for path in self._paths:
            for folder in folders_of(path):
                marks = [state_of(folder), *(mark(folder / name) for name in WATCHED)]
                seen.update(f"{folder} {marks}\n".encode("utf-8", "surrogateescape"))
        return f'"{seen.hexdigest()[:16]}"'

    def now(self) -> tuple[str, bytes]:
        """The version, and the page."""
        with self._lock:
            version = self.version()
            if version != self._made[0]:
                self._made = version, self._page(version).encode()
            return self._made

    def _page(self, version: str) -> str:
        live: Live = {"version": version, "milliseconds": self._every}
        try:
            return page(Contents(shown(self._paths), self._baseline), live)
        except FedmapError as wrong:  # no run yet, or another one in a moment
            return sentence_page(str(wrong), live)


def folders_of(path: Path) -> list[Path]:
    """The runs' folders, as long as there are some."""
    try:
        return run_folders(path)
    except FedmapError:
        return []


def mark(file: Path) -> tuple[int, int]:
    """What changes with a file's content."""
    try:
        found = os.stat(file)
    except OSError:
        return (0, 0)
    return found.st_mtime_ns, found.st_size


class Handler(BaseHTTPRequestHandler):
    """Answers with the page, and with nothing else."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "fedmap", ""

    def __init__(self, live: LivePage, *given: object) -> None:
        self._live = live
        super().__init__(*given)  # type: ignore[arg-type]  # a socket, an address, the server

    def do_GET(self) -> None:
        """The page."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Its version."""
        self._answer(with_body=False)

    def _answer(self, with_body: bool) -> None:
        refused = self._refused()
        if refused:
            self._send(refused, f"{refused.phrase}\n".encode(), with_body)
        elif with_body:
            version, content = self._live.now()
            self._send(HTTPStatus.OK, content, True, version)
        else:
            self._send(HTTPStatus.OK, b"", False, self._live.version())

    def _refused(self) -> HTTPStatus | None:
        """A name that leads here from elsewhere (DNS rebinding) is refused, and any other path."""
        assert isinstance(self.server, Server)
        here = [f"{name}:{self.server.server_port}" for name in (HOST, "localhost")]
        if self.headers.get("Host") not in here:
            return HTTPStatus.MISDIRECTED_REQUEST
        return None if self.path == "/" else HTTPStatus.NOT_FOUND

    def _send(self, status: HTTPStatus, content: bytes, body: bool, version: str = "") -> None:
        kind = "text/html" if status is HTTPStatus.OK else "text/plain"
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if version:
            self.send_header("ETag", version)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the terminal is the user's."""


class Server(ThreadingHTTPServer):
    """Ends with its process, whoever is still connected."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is no news."""


def server(
    paths: Sequence[Path], baseline: str | None = None, port: int = 0, every: int = MILLISECONDS
) -> Server:
    """A server that is bound, on a free port where none is given; `serve_forever` runs it."""
    library()  # what is missing is said now
    try:
        return Server((HOST, port), partial(Handler, LivePage(paths, baseline, every)))
    except (OSError, OverflowError) as wrong:
        reason = getattr(wrong, "strerror", None) or wrong
        raise FedmapError(
            f"cannot serve on port {port}: {reason}; choose another with --port, or 0 for any"
        ) from None
