"""The demo of a federation, told to stop while sites start and while a round is played."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from fedmap.flower.lab import marked


def runs(mark: str, program: str) -> bool:
    """Is there a process of this program with the mark?"""
    found = False
    for process in marked(mark):
        with suppress(OSError):  # it ended meanwhile
            found |= program.encode() in Path(f"/proc/{process}/cmdline").read_bytes()
    return found


@pytest.mark.parametrize(
    ("number", "during"),
    [(signal.SIGINT, "flower-supernode"), (signal.SIGTERM, "flwr-serverapp")],
)
def test_a_demo_that_is_told_to_stop_leaves_no_process(tmp_path, number, during):
    name, value = "FEDMAP_TEST", f"{tmp_path.name}-{os.getpid()}"
    mark = f"{name}={value}"
    with open(tmp_path / "output", "w") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "fedmap", "flower", "demo", "--sites", "2", "--out", "demo"],
            cwd=tmp_path,
            env=os.environ | {name: value},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + 90
        while not runs(mark, during):
            assert demo.poll() is None, (tmp_path / "output").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        demo.send_signal(number)
        # three times the grace of lab.py, and what a busy machine takes to start and end processes
        assert demo.wait(timeout=60) == 128 + number
        assert not marked(mark)
    finally:
        for process in marked(mark):
            os.kill(process, signal.SIGKILL)
        demo.wait()
