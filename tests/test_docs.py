"""Every command and every Python line in the README and the docs is run here, on less data than it
asks for."""

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fedmap
from fedmap.cli.main import app
from fedmap.experiment.leaderboard import BOARDS, Board

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BY_ITSELF = ROOT / "docs/guide/first-models.md"  # followed word by word by test_guide.py
# Added to a command: of an option that is given twice, the last one counts.
LESS = shlex.split(
    "--data synthetic --net mlp --clients 6 --rounds 1 --epochs 0.2 --fraction 0.2 --workers 1"
)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """Lines that begin with `fedmap`, in blocks and alone in back quotes, without comments."""
    lines = [
        line
        for language in ("", "bash", "sh", "shell", "console")
        for block in blocks(page, language)
        for line in block.splitlines()
    ]
    lines += re.findall(r"`(fedmap [^`]+)`", page.read_text())
    found = [line.partition(" #")[0].strip() for line in lines if line.startswith("fedmap ")]
    return [
        line
        for line in dict.fromkeys(found)
        if not re.search(r"NAME|FILE|PATH|OUT|\.\.\.|mine\.py|\brun\.toml|^fedmap data get", line)
        and line != "fedmap flower demo"  # tests/federation runs it
    ]


ALL = sorted({one for page in PAGES if page != BY_ITSELF for one in commands(page)})


def test_the_docs_have_commands() -> None:
    assert len(ALL) > 20


@pytest.mark.parametrize("command", ALL)
def test_a_command_of_the_docs_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)[1:]
    if words[0] == "resume":
        federation = fedmap.partition(fedmap.load("synthetic"), 4)
        small: dict[str, Any] = {"net": "mlp", "rounds": 1, "epochs": 0.2, "fraction": 0.2}
        fedmap.run("fedavg", federation, out=words[1], **small)
    if "--renew-server" in words:
        CliRunner().invoke(app, ["flower", "keys", words[2], "--sites", "oslo"])
    if words[0] == "leaderboard":  # tests/experiment has a whole one
        small_board = Board("", {"data": "synthetic", "clients": 6, "rounds": 1}, (0,))
        monkeypatch.setitem(BOARDS, "fashion-mini", small_board)
        monkeypatch.setattr("fedmap.experiment.leaderboard.contenders", lambda board: ["fedavg"])
    less = {
        "run": LESS,
        "compare": [*LESS, "--seeds", "0"],
        "sweep": [*LESS, "--seeds", "0"],
        "demo": ["--rounds", "1", "--workers", "1"],
    }.get(words[0], [])
    if words[0] == "study" and len(words) > 1:  # tests/paper runs every study to its end
        less = ["--scale", "smoke", "--plan", "--workers", "1", "--seeds", "0"]
    done = CliRunner().invoke(app, [*words, *less], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_the_python_lines_of_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 6), np.float32), np.arange(40) % 4
    names: dict[str, Any] = {"x0": x, "y0": y, "x1": x, "y1": y, "xt": x, "yt": y}
    for block in blocks(ROOT / "README.md", "python"):
        small = (
            block.replace("rounds=30", "rounds=1, epochs=0.2, fraction=0.1")
            .replace('"fashion-mini"', '"synthetic"')
            .replace('"lenet"', '"mlp"')
        )
        exec(small, names)
    assert len(names["own"]) == 2
    assert names["model"] is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_docs_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
