"""A federation of processes on this machine. Each test that starts one takes some seconds, so
`make test` leaves this folder out; `make test-federation` runs it."""

import signal
from pathlib import Path

import pytest

from fedmap.errors import FedmapError
from fedmap.flower.keys import Keys
from fedmap.flower.lab import MARK, Lab, listens, marked, until

APP = """
import time
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

client = ClientApp()
server = ServerApp()

@client.query()
def say_who_you_are(message, context):
    who = ConfigRecord({"site": context.node_config["site"]})
    return Message(RecordDict({"who": who}), reply_to=message)

@server.main()
def main(grid, context):
    ask = lambda node: Message(RecordDict(), dst_node_id=node, message_type="query")
    waiting = set(grid.push_messages([ask(node) for node in grid.get_node_ids()]))
    names = []
    while waiting:
        for answer in grid.pull_messages(waiting):
            waiting.discard(answer.metadata.reply_to_message_id)
            names.append(answer.content["who"]["site"])
        time.sleep(0.1)
    print("heard from", *sorted(names), flush=True)
    if context.run_config["fail"]:
        raise ValueError("the server app fails on purpose")
"""
PROJECT = """
[project]
name = "echo"
version = "1.0.0"
description = "Asks every site for its name"
license = "MIT"

[tool.flwr.app]
publisher = "fedmap"

[tool.flwr.app.components]
serverapp = "echo_app:server"
clientapp = "echo_app:client"

[tool.flwr.app.config]
fail = {fail}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A federation of two sites with keys and encryption."""
    with Lab(tmp_path_factory.mktemp("lab"), {"oslo": {}, "bergen": {}}) as lab:
        yield lab


def app(folder: Path, fail: bool) -> Path:
    (folder / "echo_app.py").write_text(APP)
    (folder / "pyproject.toml").write_text(PROJECT.format(fail=str(fail).lower()))
    return folder


def log(lab: Lab, name: str) -> str:
    return (lab.folder / "logs" / f"{name}.log").read_text()


def test_a_run_reaches_every_site(lab, tmp_path):
    run = lab.run_app(app(tmp_path, fail=False))
    assert "heard from bergen oslo" in log(lab, f"run-{run}")


def test_a_run_that_fails_is_an_error_with_its_log(lab, tmp_path):
    with pytest.raises(FedmapError, match=r"(?s)finished:failed.*fails on purpose"):
        lab.run_app(app(tmp_path, fail=True))


def test_a_site_whose_key_is_not_registered_is_refused(lab):
    lab.keys.make(["stranger"])
    lab.sites["stranger"] = {}
    with pytest.raises(FedmapError, match="stranger ended"):
        lab.start_sites("stranger")


def test_a_site_that_trusts_another_authority_does_not_talk_to_the_server(
    lab, tmp_path, monkeypatch
):
    other = Keys(tmp_path / "keys")
    other.make(["deceived"])
    lab.sites["deceived"] = {}
    monkeypatch.setattr(lab, "keys", other)
    with pytest.raises(FedmapError, match="deceived"):
        lab.start_sites("deceived", within=8)
    monkeypatch.undo()
    # On a busy machine it may not have tried yet.
    for _ in until(60, lambda: FedmapError(log(lab, "deceived"))):
        if "certificate verify failed" in log(lab, "deceived").lower():
            break
    lab.end_site("deceived", signal.SIGKILL)


def test_a_site_that_was_ended_comes_back(lab):
    lab.end_site("oslo")
    lab.restart_site("oslo", within=30)


def left_of(lab: Lab) -> set[int]:
    return marked(f"{MARK}={lab._id}/")


def test_nothing_is_left_after_an_error_inside(tmp_path):
    lab, started = Lab(tmp_path, {"oslo": {}}, insecure=True), set()

    def fail_inside() -> None:
        with lab:
            started.update(left_of(lab))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()
    assert len(started) >= 3  # the SuperLink, its helper, the site
    assert not left_of(lab)
    assert not any(listens(port) for port in lab._ports.values())


def test_a_lab_can_be_opened_again_in_its_folder(tmp_path):
    for _ in range(2):
        with Lab(tmp_path, {"oslo": {}}) as lab:
            nodes = lab.flwr("supernode", "ls", "lab")["nodes"]
    assert [node["status"] for node in nodes] == ["online"]


def test_nothing_is_left_when_a_site_cannot_start(tmp_path):
    lab = Lab(tmp_path, {"oslo": {}}, keys=Keys(tmp_path / "keys"))
    lab.keys.make(["oslo"])
    lab.keys.site_key("oslo").write_text("no key")
    with pytest.raises(FedmapError, match="oslo ended"), lab:
        pytest.fail("the lab started")
    assert not left_of(lab)
