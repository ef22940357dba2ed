"""The page of promises: every test that it names is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reliability.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| fault ", "| --- "))
]
PROMISES = [row for row in ROWS if "::" in row[-1]]


def functions(file: Path) -> set[str]:
    """The functions of a file, in classes too."""
    tree = ast.walk(ast.parse(file.read_text()))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef)}


def test_the_page_has_promises() -> None:
    assert len(PROMISES) > 50


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[0])
def test_the_tests_of_a_promise_are_there(row: list[str]) -> None:
    assert len(row) == 3
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[2])
    assert named
    for file, test in named:
        assert test in functions(ROOT / file), f"{file} has no {test}"


def test_no_fault_stands_twice() -> None:
    faults = [row[0] for row in PROMISES]
    assert len(set(faults)) == len(faults)
