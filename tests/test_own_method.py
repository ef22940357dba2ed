"""A method in the user's own file: the page's example runs as it stands, and every way to name a
wrong file gets its sentence."""

import re
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.data import synthetic
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS, find_method, method_name
from fedmap.methods.fedavg import FedAvg
from fedmap.simulate import Result, Settings

PAGE = Path(__file__).parent.parent / "docs/own-method.md"
SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "fraction": 1.0, "epochs": 1}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The page's example as a file."""
    file = tmp_path / "mine.py"
    example = re.search(r"```python\n(import.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    file.write_text(example.group(1))
    return file


@pytest.fixture
def federation() -> Federation:
    return fedmap.partition(synthetic(classes=4, train=60, test=20, shape=(6,)), 3)


def test_the_example_of_the_page_holds_the_battery(mine: Path) -> None:
    fedmap.check_method(f"{mine}:Mine")


def test_the_example_of_the_page_is_about_25_lines(mine: Path) -> None:
    assert 20 <= sum(1 for line in mine.read_text().splitlines() if line.strip()) <= 26


def test_the_example_of_the_page_does_what_it_says(mine: Path, federation: Federation) -> None:
    result = fedmap.run(f"{mine}:Mine", federation, **SMALL, params={"smoothing": 0.2})
    assert result.settings.params == {"smoothing": 0.2}
    one = fedmap.run(f"{mine}:Mine", federation, **SMALL | {"rounds": 1}, params={"smoothing": 0.0})
    plain = fedmap.run("fedavg", federation, **SMALL | {"rounds": 1})
    assert one.rounds[0]["personal_accuracy"] == plain.rounds[0]["personal_accuracy"]
    assert one.rounds[0]["train_loss"] == plain.rounds[0]["train_loss"]


def test_a_run_keeps_the_files_absolute_path_and_is_resumed_from_another_folder(
    mine: Path, federation: Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(record: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        fedmap.run("./mine.py:Mine", federation, out=tmp_path / "run", on_round=stop, **SMALL)
    assert f'method = "{mine.resolve()}:Mine"' in (tmp_path / "run/run.toml").read_text()
    monkeypatch.chdir("/")
    done = fedmap.run(f"{mine}:Mine", federation, out=tmp_path / "run", resume=True, **SMALL)
    whole = fedmap.run(f"{mine}:Mine", federation, **SMALL)
    assert [r["train_loss"] for r in done.rounds] == [r["train_loss"] for r in whole.rounds]
    read = Result.read(tmp_path / "run", method=f"{mine}:Mine")
    assert read.personal_model(0)(federation.test_x).shape == (20, 4)


def test_a_folder_is_named_by_the_class_and_not_by_the_path(mine: Path) -> None:
    settings = Settings.of({"method": f"{mine}:Mine", "data": "synthetic"})
    assert settings.name.startswith("Mine-synthetic-")


def test_a_file_is_run_again_only_when_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "twice.py"
    text = "import fedmap\n@fedmap.register\nclass Twice(fedmap.Method):\n    '''One.'''\n"
    file.write_text(text)
    first = find_method(f"{file}:Twice")
    assert find_method(f"{file}:Twice") is first
    file.write_text(text.replace("One", "Another"))
    assert find_method(f"{file}:Twice").line() == "Another."


def test_two_files_may_have_classes_of_the_same_name(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other/mine.py"
    other.write_text(mine.read_text())
    assert find_method(f"{mine}:Mine") is not find_method(f"{other}:Mine")
    assert "mine" not in METHODS


def test_a_name_without_a_file_is_a_registered_method() -> None:
    assert find_method("fedavg") is FedAvg
    assert method_name("fedavg") == "fedavg"
    with pytest.raises(FedmapError, match="there is no method 'fedavgg'; did you mean 'fedavg'"):
        find_method("fedavgg")


def test_a_method_of_ones_own_may_have_presets(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("""
from fedmap.methods import FedRS
class Mine(FedRS):
    presets = {"much": {"alpha": 0.1, "mode": "soft"}}
""")
    mine = find_method(f"{file}:Mine")
    assert dict(mine(preset="much", mode="share").params) == {
        "alpha": 0.1,
        "mode": "share",
        "factors": False,
    }
    with pytest.raises(FedmapError, match=r"mine has no preset 'mch'; did you mean 'much'"):
        mine(preset="mch")
    with pytest.raises(FedmapError, match=r"fedavg has no preset 'much'; it has none"):
        FedAvg(preset="much")


WRONG = {
    "no/such.py:Mine": "there is no file .*no/such.py",
    "own.py:Mines": "own.py has no 'Mines'; did you mean 'Mine'. there are: Mine",
    "own.py": "own.py names a file but nothing in it; give own.py:NAME",
    "own.py:": "own.py: names a file but nothing in it; give own.py:NAME",
    "own.py:number": "number is no subclass of fedmap.Method",
    "own.py:Plain": "Plain is no subclass of fedmap.Method",
    "raises.py:Mine": "raises.py fails when it is imported: line 2: "
    "ZeroDivisionError: division by zero",
    "syntax.py:Mine": "syntax.py fails when it is imported: .*SyntaxError",
    "taken.py:FedAvg": "taken.py fails when it is imported: "
    ".*method 'fedavg' is registered already",
    "empty.py:Mine": "empty.py has no 'Mine'; it has no subclass of fedmap.Method",
    "text.txt:Mine": "text.txt is not a Python file; its name must end in .py",
}
FILES = {
    "own.py": """
from fedmap.methods import FedRS
number = 3
class Plain: pass
class Mine(FedRS): pass
""",
    "raises.py": "x = 0\ny = 1 / x\n",
    "syntax.py": "def def\n",
    "taken.py": "import fedmap\n@fedmap.register\nclass FedAvg(fedmap.Method): pass\n",
    "empty.py": "",
    "text.txt": "hello",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_gives_no_method_is_refused_with_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedmapError, match=WRONG[name]) as refused:
        find_method(name)
    assert "\n" not in str(refused.value)
