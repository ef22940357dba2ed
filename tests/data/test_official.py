"""How official sets are found and registered."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmap.data import DATASETS, Dataset, Defaults, official, synthetic
from fedmap.data.cache import Arrays
from fedmap.data.official.base import OFFICIAL, OfficialSet, Verification, register_official
from fedmap.data.verify import check
from fedmap.errors import FedmapError

MODULE = """
from fedmap.data.official.base import register_official
from fedmap.data.official.mnist import Mnist


@register_official
class Dropped(Mnist):
    name = "dropped-mnist"
    folders = ("dropped",)
"""


class Whole(OfficialSet):
    """A set that has everything."""

    name = "whole"
    line = "a set of the tests"
    defaults = Defaults(clients=7)
    classes = ("a", "b")
    folders = ("whole",)
    marks = ("data",)

    def files(self, folder: Path) -> list[Path]:
        return [folder / "data"]

    def decode(self, folder: Path) -> Arrays:
        return {}

    def dataset(self, arrays: Arrays) -> Dataset:
        return synthetic(classes=2, train=4, test=2)

    def check(self, report: Verification) -> None:
        report.compare_count("samples", 3, 2)


@pytest.fixture(autouse=True)
def _registries_as_before() -> Iterator[None]:
    before = OFFICIAL.copy()
    with DATASETS.restored():
        yield
    OFFICIAL.clear()
    OFFICIAL.update(before)


def test_a_module_that_is_put_among_the_official_sets_is_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dropped.py").write_text(MODULE)
    monkeypatch.setattr(official, "__path__", [*official.__path__, str(tmp_path)])
    official.import_all()
    del sys.modules["fedmap.data.official.dropped"]
    assert "dropped-mnist" in OFFICIAL
    assert "dropped-mnist" in DATASETS


def test_a_registered_set_is_loaded_and_checked_by_name(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "data").touch()
    register_official(Whole)
    assert len(DATASETS["whole"].load(tmp_path).train_y) == 4
    assert DATASETS["whole"].defaults.clients == 7
    assert check("whole", tmp_path).wrong == ["3 samples where 2 are official"]


def test_a_set_without_a_check_is_refused() -> None:
    class Unchecked(OfficialSet):
        name, line, classes, defaults = "unchecked", "a line", ("a",), Defaults()
        folders, marks = ("unchecked",), ("data",)
        files, decode = Whole.files, Whole.decode

    with pytest.raises(FedmapError, match=r"official set Unchecked has no check; .*test_official"):
        register_official(Unchecked)
    assert "unchecked" not in OFFICIAL


def test_a_set_without_defaults_is_refused() -> None:
    class WithoutDefaults(OfficialSet):
        name, line, classes = "no-defaults", "a line", ("a",)
        folders, marks = ("no-defaults",), ("data",)
        files, decode, check = Whole.files, Whole.decode, Whole.check

    with pytest.raises(FedmapError, match="official set WithoutDefaults has no defaults;"):
        register_official(WithoutDefaults)
    assert "no-defaults" not in DATASETS


def test_two_sets_cannot_have_the_same_name() -> None:
    class Other(Whole):
        name = "mnist"

    with pytest.raises(FedmapError, match=r"'mnist' is registered already, by .*official\.mnist"):
        register_official(Other)
    assert not isinstance(OFFICIAL["mnist"], Other)
