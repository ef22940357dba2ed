"""The command line without a shell."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from fedmap.cli.main import main


class Done(NamedTuple):
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def fedmap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Done]:
    """The command as the shell calls it, in its own folder, in this process: Python does not start
    again each time."""
    monkeypatch.chdir(tmp_path)

    def call(arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["fedmap", *arguments.split()])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return call
