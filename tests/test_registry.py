import pytest

from fedmap.errors import FedmapError
from fedmap.registry import Registry


def test_an_unknown_name_suggests_the_nearest() -> None:
    colors: Registry[int] = Registry("color")
    colors.add("green")(1)
    colors.add("blue")(2)
    assert colors["green"] == 1
    with pytest.raises(
        FedmapError,
        match="there is no color 'gren'; did you mean 'green'\\? there are: blue, green",
    ):
        colors["gren"]
    with pytest.raises(FedmapError, match="there is no color 'xyzzy'; there are: blue, green"):
        colors["xyzzy"]


def test_a_name_is_not_taken_twice_by_different_modules() -> None:
    things: Registry[type] = Registry("thing")
    things.add("one")(type("One", (), {"__module__": "here"}))
    with pytest.raises(FedmapError, match="thing 'one' is registered already, by here"):
        things.add("one")(type("One", (), {"__module__": "there"}))
