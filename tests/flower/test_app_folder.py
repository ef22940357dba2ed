import tomllib
from pathlib import Path
from typing import Any

import pytest
from flwr.cli.build import build_fab_from_disk
from flwr.common.config import flatten_dict, get_fab_config, validate_config

from fedmap.errors import FedmapError
from fedmap.flower.app_folder import flat, write_app
from fedmap.flower.server_app import read


def project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def config(folder: Path) -> dict[str, Any]:
    """As Flower gives it to the server."""
    return flatten_dict(project(folder)["tool"]["flwr"]["app"]["config"])


def test_flower_finds_nothing_wrong_with_the_folder(tmp_path):
    write_app(tmp_path, {})
    assert validate_config(project(tmp_path)) == (True, [], [])


def test_what_was_given_reaches_the_server(tmp_path):
    given = {"method": "map", "net": "lenet", "rounds": 7, "weight_decay": 0.5, "min_sites": 3}
    write_app(tmp_path, given | {"params": {"alpha": 0.25, "hpm_momentum": 0.5}})
    options, settings = read(config(tmp_path))
    assert (settings.net, settings.rounds, settings.weight_decay) == ("lenet", 7, 0.5)
    assert (settings.params["alpha"], settings.params["hpm_momentum"]) == (0.25, 0.5)
    assert options.min_sites == 3


def test_the_names_that_flower_makes_are_those_that_were_checked(tmp_path):
    given = {"params": {"alpha": 0.5}}
    write_app(tmp_path, given)
    assert set(flat(given)) == {"params.alpha"}
    assert "params.alpha" in config(tmp_path)


def test_the_run_is_kept_in_the_folder_unless_another_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_app(Path("one"), {})
    write_app(Path("two"), {"out": "elsewhere"})
    assert config(Path("one"))["out"] == str(tmp_path / "one" / "run")
    assert config(Path("two"))["out"] == str(tmp_path / "elsewhere")


def test_a_path_of_test_data_is_made_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_app(Path("app"), {"test_data": "folder:scans"})
    assert config(Path("app"))["test-data"] == f"folder:{tmp_path / 'scans'}"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"params": {"alpa": 0.5}}, "method map has no parameter 'alpa'; did you mean 'alpha'"),
        ({"params": {"alpha": [0.5]}}, r"params.alpha is \[0.5\]; Flower carries numbers"),
        ({"method": "mapp"}, "there is no method 'mapp'; did you mean 'map'"),
        ({"rounds": 0}, "rounds is 0; allowed: whole number from 1"),
        ({"min_sites": 0}, "min_sites is 0; allowed: whole number from 1"),
        ({"net": "lenett"}, "there is no net 'lenett'; did you mean 'lenet'"),
        ({"test_data": "fashion-mine"}, "there is no dataset 'fashion-mine'"),
        ({"test_data": "folders:x"}, "there is no data format 'folders'"),
        ({"test_data": "folder:"}, "'folder:' has no path"),
    ],
)
def test_what_is_wrong_is_said_at_once_and_nothing_is_written(tmp_path, given, sentence):
    with pytest.raises(FedmapError, match=sentence):
        write_app(tmp_path / "app", given)
    assert not (tmp_path / "app").exists()


def test_a_method_in_a_file_is_refused_and_not_loaded(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\n")
    with pytest.raises(FedmapError, match="a server must not choose their code"):
        write_app(tmp_path / "app", {"method": f"{file}:Mine"})
    assert not (tmp_path / "loaded").exists()


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # in flwr
def test_nothing_of_the_runs_folder_goes_to_the_sites(tmp_path):
    write_app(tmp_path, {})
    before = build_fab_from_disk(tmp_path)
    (tmp_path / "run").mkdir()
    for name in ("run.toml", "final.json", "notes.md"):
        (tmp_path / "run" / name).write_text("")
    assert build_fab_from_disk(tmp_path) == before
    assert get_fab_config(before)["project"]["name"] == "fedmap-federation"


def test_another_projects_file_is_not_replaced(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    with pytest.raises(FedmapError, match="is another project's"):
        write_app(tmp_path, {})


def test_a_folder_can_be_written_again_with_other_settings(tmp_path):
    write_app(tmp_path, {"rounds": 3})
    write_app(tmp_path, {"rounds": 4})
    assert config(tmp_path)["rounds"] == 4
