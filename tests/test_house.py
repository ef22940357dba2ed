"""A method is three files: its module, its page and its test. What is missing is named here."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest
from pydantic.fields import FieldInfo

from fedmap.methods import METHODS, Method
from fedmap.paper.groups import GROUPS

ROOT = Path(__file__).parent.parent
FRAME = {"__init__", "base", "resolve"}  # modules of fedmap.methods that are no method
MODULES = sorted({file.stem for file in ROOT.glob("src/fedmap/methods/*.py")} - FRAME)
INDEX = ROOT / "docs/methods/README.md"


def shortest(value: object) -> str:
    """A value as text, numbers in their shortest form: 1.0 is 1."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number.group()):g}", str(value))


def table_of_parameters(name: str) -> dict[str, list[str]]:
    """From a method's page: for each parameter its default, range and groups of the paper. What the
    page does not repeat stands in the page of a method that it links to."""
    page = (ROOT / f"docs/methods/{name}.md").read_text()
    rows: dict[str, list[str]] = {}
    for linked in re.findall(r"\]\((\w+)\.md\)", page):
        if linked in MODULES:
            rows |= own_table((ROOT / f"docs/methods/{linked}.md").read_text())
    return rows | own_table(page)


def own_table(page: str) -> dict[str, list[str]]:
    lines = [line.strip("| ").split("|") for line in page.splitlines() if line.startswith("| `")]
    cells = [[shortest(part.strip().replace("`", "")) for part in line] for line in lines]
    return {row[0]: row[1:4] for row in cells if len(row) == 5}


def allowed(field: FieldInfo) -> str:
    """The range of a parameter in the words of the pages."""
    if field.annotation is bool:
        return "False, True"
    if names := [name for name in get_args(field.annotation) if isinstance(name, str)]:
        return ", ".join(names)
    words = {"ge": "from", "gt": "above", "le": "up to", "lt": "below"}
    ends = {
        name: getattr(end, name) for end in field.metadata for name in words if hasattr(end, name)
    }
    if set(ends) == {"ge", "le"}:
        return f"{ends['ge']:g} to {ends['le']:g}"
    return ", ".join(f"{words[name]} {end:g}" for name, end in ends.items())


def test_there_are_methods_to_look_at() -> None:
    assert {"fedavg", "map"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_defines_one_method_that_is_registered_under_the_modules_name(name: str) -> None:
    module = import_module(f"fedmap.methods.{name}")
    own = [
        thing
        for thing in vars(module).values()
        if inspect.isclass(thing)
        and issubclass(thing, Method)
        and thing.__module__ == module.__name__
    ]
    assert len(own) == 1, f"src/fedmap/methods/{name}.py must define one method, not {own}"
    assert own[0].name() == name, f"the class in src/fedmap/methods/{name}.py is called {own[0]}"
    assert name in METHODS, f"{own[0].__name__} in {name}.py is not registered: add @register"
    assert METHODS[name] is own[0]


def test_every_method_is_found_without_being_imported_by_name() -> None:
    """In a new process: here, a test may have imported the module."""
    ask = "from fedmap.methods import METHODS; print(*METHODS)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    lost = set(MODULES) - set(done.stdout.split())
    assert not lost, f"`fedmap methods` does not find {sorted(lost)}"


@pytest.mark.parametrize("name", MODULES)
def test_a_method_has_a_page_that_the_index_knows_and_a_test(name: str) -> None:
    for path in (f"docs/methods/{name}.md", f"tests/methods/test_{name}.py"):
        assert (ROOT / path).exists(), f"method {name} has no {path}"
    assert f"]({name}.md)" in INDEX.read_text(), f"docs/methods/README.md does not name {name}"


def test_every_page_belongs_to_a_method() -> None:
    pages = {page.stem for page in INDEX.parent.glob("*.md")} - {"README"}
    assert pages <= set(MODULES), f"there is no method for {sorted(pages - set(MODULES))}"


@pytest.mark.parametrize("name", MODULES)
def test_the_page_states_the_default_of_every_parameter(name: str) -> None:
    rows = table_of_parameters(name)
    for parameter, field in METHODS[name].Params.model_fields.items():
        assert parameter in rows, f"docs/methods/{name}.md has no row for {parameter}"
        assert rows[parameter][0] == shortest(field.default), f"{parameter} of {name}"


@pytest.mark.parametrize("name", MODULES)
def test_the_page_states_the_range_of_every_parameter(name: str) -> None:
    rows = table_of_parameters(name)
    for parameter, field in METHODS[name].Params.model_fields.items():
        assert rows[parameter][1] == allowed(field), f"{parameter} of {name}"


@pytest.mark.parametrize("name", MODULES)
def test_the_page_states_the_groups_of_the_paper(name: str) -> None:
    rows, groups = table_of_parameters(name), GROUPS.get(name, [])
    for parameter in {parameter for group in groups for parameter in group}:
        values = [shortest(group[parameter]) for group in groups]
        same = set(values) == {values[0]}
        assert rows[parameter][2] == (values[0] if same else ", ".join(values)), parameter
