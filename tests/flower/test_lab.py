"""What of a lab needs no federation."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from fedmap.errors import FedmapError
from fedmap.flower.lab import Lab, free_ports, leave, listens, marked, tail, until
from fedmap.signals import on_signals


def test_ports_are_free_and_different():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(listens(port) for port in ports)


def test_a_port_that_is_listened_on_is_seen():
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert listens(server.getsockname()[1])


@pytest.fixture
def sleeper():
    """A process that carries the mark TEST_MARK=one, until the test is over."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"],
        env=os.environ | {"TEST_MARK": f"{os.getpid()}/one"},
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def test_a_process_is_found_by_its_mark(sleeper):
    assert marked(f"TEST_MARK={os.getpid()}/") == {sleeper.pid}
    assert marked(f"TEST_MARK={os.getpid()}/one\0") == {sleeper.pid}


@pytest.mark.parametrize("other", ["TEST_MARK={}/on\0", "MARK={}/one", "TEST_MARK={}/two"])
def test_a_process_with_another_mark_is_not_found(sleeper, other):
    assert not marked(other.format(os.getpid()))


def test_sigterm_is_an_exception_inside_and_what_it_was_before_outside():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit, match="143"), on_signals({signal.SIGTERM: leave}):
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_leaves_signals_alone():
    before, found = signal.getsignal(signal.SIGTERM), []

    def look() -> None:
        with on_signals({signal.SIGTERM: leave}):
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [before]


def test_waiting_looks_at_least_once_and_ends_with_the_failure():
    turns = until(0.1, lambda: FedmapError("too late"))
    next(turns)
    with pytest.raises(FedmapError, match="too late"):
        list(turns)


def test_the_end_of_a_log_is_shown(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"\xff\n" + b"".join(b"%d\n" % number for number in range(50)))
    assert tail(log, 3) == "47\n48\n49"


def test_children_find_the_commands_of_this_python_first_and_are_quiet(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "kept")
    given = Lab(tmp_path, {})._environment("oslo", "oslo")
    assert given["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)
    assert given["PYTHONPATH"] == "kept"
    assert (given["FLWR_TELEMETRY_ENABLED"], given["FLWR_DISABLE_UPDATE_CHECK"]) == ("0", "1")
    assert given["FLWR_HOME"] == str(tmp_path / "homes" / "oslo")


@pytest.mark.parametrize("name", ["superlink", "flwr", "../oslo"])
def test_a_name_that_is_no_sites_is_refused(tmp_path, name):
    with pytest.raises(FedmapError, match=r"cannot be called|is not allowed"):
        Lab(tmp_path, {name: {}})
