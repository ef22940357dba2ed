import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner
from writers import write_cinic, write_mnist

from fedmap.cli.data import app
from fedmap.data import download
from fedmap.errors import FedmapError


def run(*arguments: object) -> str:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(
        app, [str(argument) for argument in arguments], catch_exceptions=False
    )
    assert result.exit_code == 0
    return result.output


def test_list_shows_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    lines = {line.split()[0]: line for line in run("list", "--data-dir", tmp_path).splitlines()}
    assert "built in" in lines["fashion-mini"]
    assert f"{tmp_path}/mnist (--data-dir)" in lines["mnist"]
    assert "not there" in lines["cifar-10"]
    assert str(tmp_path) in lines["searched:"]


def test_check_passes_on_a_part_and_says_so(tmp_path: Path) -> None:
    write_cinic(tmp_path)
    assert "cinic-10: a part of the official set" in run(
        "check", "cinic-10", "--data-dir", tmp_path
    )


def test_check_fails_on_other_content(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist")
    with pytest.raises(FedmapError, match="mnist: not the official set"):
        run("check", "mnist", "--data-dir", tmp_path)


def test_get_shows_progress_and_where_the_set_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(name: str, data_dir: Path | None, progress: download.Progress) -> Path:
        progress("archive.tar.gz", 5, 10)
        progress("archive.tar.gz", 10, 10)
        assert data_dir is not None
        return data_dir / name

    monkeypatch.setattr(download, "get", get)
    output = run("get", "mnist", "--data-dir", tmp_path)
    assert "archive.tar.gz" in output
    assert f"mnist is in {tmp_path}/mnist" in output


def test_the_commands_load_nothing_heavy_before_they_run() -> None:
    code = "import sys, fedmap.cli.data; print(sys.modules.keys() & {'torch', 'numpy', 'PIL'})"
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.strip() == "set()"
