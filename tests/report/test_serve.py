"""The served page: what it answers, to whom, and when it is made anew."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from fedmap.report.page.serve import HOST, LivePage, Server, server
from fedmap.simulate.lock import locked


@pytest.fixture(scope="module")
def serving(hostile_runs: Path) -> Iterator[Server]:
    with server([hostile_runs]) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.05,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def ask(
    serving: Server, method: str = "GET", path: str = "/", host: str | None = None
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(HOST, serving.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"{HOST}:{serving.server_port}")
    connection.endheaders()
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_it_answers_with_the_page_and_its_version(serving: Server) -> None:
    answer, content = ask(serving)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert b"What came out on arrays" in content
    version = answer.headers["ETag"].strip('"')
    assert f'"live":{{"version":"\\"{version}\\""'.encode() in content
    assert b"connect-src 'self'" in content
    head, nothing = ask(serving, "HEAD", host=f"localhost:{serving.server_port}")
    assert (head.headers["ETag"], nothing) == (answer.headers["ETag"], b"")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "evil.example:{}", "127.0.0.1:1"])
def test_a_name_that_leads_here_from_elsewhere_is_refused(serving: Server, host: str) -> None:
    for method in ("GET", "HEAD"):
        answer, content = ask(serving, method, host=host.format(serving.server_port))
        assert answer.status == 421
        assert b"fedmap" not in content


@pytest.mark.parametrize("path", ["/x", "/run.toml", "/../etc/passwd", "/?a=b"])
def test_there_is_nothing_but_the_page(serving: Server, path: str) -> None:
    assert ask(serving, path=path)[0].status == 404


def test_nothing_can_be_sent_to_it(serving: Server) -> None:
    assert ask(serving, "POST")[0].status == 501


def test_it_listens_on_this_machine_alone(serving: Server) -> None:
    assert serving.server_address[0] == "127.0.0.1"


def test_a_page_is_made_anew_when_a_run_goes_on_and_not_else(
    hostile_runs: Path, tmp_path: Path
) -> None:
    live = LivePage([tmp_path / "runs"])
    _, nothing = live.now()
    assert b"there is no folder" in nothing  # which is no reason to end: a run may come
    shutil.copytree(hostile_runs, tmp_path / "runs")
    version, content = live.now()
    assert b"What came out on arrays" in content
    assert live.now()[1] is content
    shutil.rmtree(tmp_path / "runs/map-1")
    assert live.version() != version


def test_a_run_that_ends_without_a_word_is_news(hostile_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(hostile_runs / "map-0", tmp_path / "run")
    (tmp_path / "run/done").unlink()
    (tmp_path / "run/checkpoint").mkdir()
    live = LivePage([tmp_path])
    with locked(tmp_path / "run/checkpoint/lock"):
        running = live.version()
    assert live.version() != running


def test_ctrl_c_ends_it_in_order(fedmap: Callable[[str], Any], hostile_runs: Path) -> None:
    # as in a terminal, also where these tests were started with SIGINT ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        done = fedmap(f"report {hostile_runs} --serve")
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert done.returncode == 0
    first, last = done.stdout.splitlines()
    assert first.startswith("http://127.0.0.1:")
    assert last == "stopped"


def test_a_port_that_is_taken_is_one_sentence(
    serving: Server, fedmap: Callable[[str], Any], hostile_runs: Path
) -> None:
    done = fedmap(f"report {hostile_runs} --serve --port {serving.server_port}")
    assert done.returncode == 1
    assert f"cannot serve on port {serving.server_port}: Address already in use" in done.stderr
