"""The notebooks run from their first cell to their last, and show what they promise."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def executed(name: str, folder: Path) -> list[str]:
    """What each code cell shows, as text; HTML where there is some."""
    from nbclient import NotebookClient

    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    return [shown(cell) for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: Any) -> str:
    """All outputs of a cell together."""
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        texts.append(output.get("text") or data.get("text/html") or data.get("text/plain", ""))
    return "".join(texts)


def test_own_arrays_are_diagnosed_trained_and_asked(tmp_path: Path) -> None:
    federation, diagnosis, figure, table, gains, answers = executed("own_data.ipynb", tmp_path)
    assert "4 clients" in federation
    assert "4 of 4 clients miss at least one of 4 classes" in diagnosis
    assert "Figure" in figure
    assert "local" in table
    assert gains.count("with MAP") == 4
    truth, of_global, molde = answers.splitlines()
    assert truth == "truth  ['busy', 'busy', 'busy', 'broken', 'broken', 'broken']"
    assert set(re.findall(r"'(\w+)'", molde)) <= {"busy", "broken"}  # molde has no others
    assert of_global.startswith("global [")


def test_a_method_is_written_checked_and_leaves_missing_proxies_alone(tmp_path: Path) -> None:
    _, checked, compared, moved = executed("own_method.ipynb", tmp_path)
    assert not checked
    assert re.findall(r"^(\w+) +global", compared, re.MULTILINE) == ["fedavg", "leftout"]
    assert float(moved) == 0.0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_outputs_and_is_small(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert path.stat().st_size < 10_000


def test_every_notebook_is_executed_here() -> None:
    here = Path(__file__).read_text()
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        assert f'executed("{path.name}"' in here
