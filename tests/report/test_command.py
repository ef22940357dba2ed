"""The command that repeats a run leads to the same run."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedmap
from fedmap.cli.main import app
from fedmap.diagnosis.diagnose import flags
from fedmap.report.command import command
from fedmap.simulate.result import Result
from fedmap.simulate.settings import Settings, described

SMALL: dict[str, Any] = {"data": "synthetic", "net": "tiny", "rounds": 1, "epochs": 0.2}


@pytest.mark.parametrize(
    "given",
    [
        {"method": "fedavg", "clients": 4},
        {"method": "map", "params": {"preset": "own", "alpha": 0.3}, "seed": 3, "clients": 4},
        {"method": "fedrs", "partition_seed": 7, "clients": 5, "fraction": 0.5, "lr": 0.1},
        {"method": "fedavg", "partition": "dirichlet", "partition_params": {"alpha": 0.5}},
        {"method": "fedavg", "clients": 4, "validation": 0.2, "patience": 1, "clip": 2.0},
        {
            "method": "fedavg",
            "clients": 6,
            "aggregate": "trimmed",
            "attack": "signs",
            "attackers": 0.2,
        },
    ],
    ids=lambda given: "-".join(given),
)
def test_the_command_repeats_the_run(
    given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = Settings.of(SMALL | given)
    given = settings.model_dump()
    result = fedmap.run(federation=settings.federation(), out=tmp_path / "first", **given)
    again = command(Result.read(result.folder).settings)
    done = CliRunner().invoke(app, [*shlex.split(again)[1:], "--quiet"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name == result.settings.name
    for name in ("global.safetensors", "final.json"):
        assert (folder / name).read_bytes() == (result.folder / name).read_bytes()


def test_a_run_on_arrays_has_no_command() -> None:
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    federation = fedmap.Federation.from_arrays([(x, y)])
    result = fedmap.run("fedavg", federation, net="tiny", rounds=1)
    assert command(result.settings) == ""


def test_own_tables_are_read_as_they_were() -> None:
    given = {"data": "csv:/data/my shops", "label_column": "kind", "categories": ("a", "b")}
    words = shlex.split(command(Settings.kept(Settings.of(given).model_dump(), {})))
    for flag, value in (
        ("--data", "csv:/data/my shops"),
        ("--label", "kind"),
        ("--categories", "a,b"),
    ):
        assert words[words.index(flag) + 1] == value


def test_a_table_without_categories_names_none(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("f,y\n" + "1,0\n2,1\n" * 20)
    federation = fedmap.partition(fedmap.load(f"csv:{tmp_path / 'all.csv'}"), clients=2)
    result = fedmap.run("fedavg", federation, net="mlp", rounds=1, out=tmp_path / "run")
    assert "--categories" not in command(result.settings)
    assert "--categories" not in flags(described(result.folder / "run.toml"))
