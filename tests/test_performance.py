"""The page on speed begins with one picture and one table, which says what the tables below say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/performance.md").read_text()
COLUMNS = ["lenet", "mlp", "conv2", "vgg8", "resnet20"]


def ratios(workload: str) -> dict[str, float]:
    """How many times fedmap's time each contender takes, from the table of a workload."""
    (table,) = re.findall(rf"\({workload}\): .*?\n\n(.*?)\n\n", PAGE, re.DOTALL)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {row[0]: float(row[3]) for row in rows}


def first_table() -> list[list[str]]:
    (table,) = re.findall(r"comparison\.png\)\n\n(.*?)\n\n", PAGE, re.DOTALL)
    return [line.strip("| ").split(" | ")[1:] for line in table.splitlines()[2:]]


def test_the_page_begins_with_a_picture_and_a_table() -> None:
    assert PAGE.index("comparison.png") < PAGE.index("| the fastest of the others") < 600


@pytest.mark.parametrize("place", range(len(COLUMNS)), ids=COLUMNS)
def test_the_first_table_says_what_the_tables_below_say(place: int) -> None:
    fastest, bare = (row[place] for row in first_table())
    found = ratios(COLUMNS[place])
    others = {n: r for n, r in found.items() if not n.startswith("fedmap") and n != "bare"}
    name = min(others, key=lambda name: others[name])
    assert fastest.split()[1] == f"({name})"
    # the tables have two digits, of which 2.05 may have been 2.049 or 2.051
    assert float(fastest.split()[0]) == pytest.approx(others[name], abs=0.0501)
    assert float(bare) == pytest.approx(found["bare"], abs=0.0501)


def test_the_readme_says_the_same() -> None:
    others = [float(cell.split()[0]) for cell in first_table()[0]]
    said = f"{min(others)} to {max(others)} times as fast as the fastest of six others"
    assert said in (ROOT / "README.md").read_text()
