"""The path of a new user, word by word: the commands of two pages in a fresh environment, from
`pip install` to models in use. Only the training is shorter."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs/guide/first-models.md"
START = ROOT / "docs/start.md"
LESS = "--rounds 1 --epochs 0.1"  # of an option that is given twice, the last one counts
SHORTER = {"run": LESS, "compare": f"{LESS} --seeds 0", "inspect": "--epochs 0.1"}
MOST_COMMANDS = 5


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of every block, in their order."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def commands(page: Path = GUIDE) -> list[str]:
    """The lines of a page's blocks for a shell."""
    return [line for language, block in blocks(page) if not language for line in block.splitlines()]


def path_of(word: str) -> list[str]:
    """The commands that are about the folders, or about the table."""
    return [line for line in commands() if line.startswith("fedmap ") and word in line]


def typed(words: list[str], bin_folder: Path, folder: Path) -> str:
    """What a program of the new environment prints; not one module of this source is found."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    asked = [str(bin_folder / words[0]), *words[1:]]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, env=outside)
    assert done.returncode == 0, f"{words}\n{done.stderr}"
    return done.stdout


def shortly(line: str, bin_folder: Path, folder: Path) -> str:
    """What a line of a page prints, where training is short."""
    words = shlex.split(line)
    return typed([*words, *shlex.split(SHORTER.get(words[1], ""))], bin_folder, folder)


@pytest.fixture(scope="module")
def user_folder(new_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the user works, with files to train on."""
    folder = tmp_path_factory.mktemp("user")
    for line in commands():
        if line.startswith("python scripts/"):
            words = shlex.split(line)
            typed(["python", str(ROOT / words[1]), *words[2:]], new_environment, folder)
    return folder


@pytest.mark.parametrize("word", ["branches", "digits"])
def test_a_new_user_gets_from_files_to_models_in_use(
    word: str, new_environment: Path, user_folder: Path
) -> None:
    printed = {line: shortly(line, new_environment, user_folder) for line in path_of(word)}
    (answers,) = (text for line, text in printed.items() if line.startswith("fedmap predict"))
    assert "probability" in answers
    model = "bodo.onnx" if word == "branches" else "digits.onnx"
    assert (user_folder / model).stat().st_size > 1000


@pytest.mark.parametrize("word", ["branches", "digits"])
def test_five_commands_are_enough(word: str) -> None:
    assert 3 <= len(path_of(word)) <= MOST_COMMANDS


def test_the_first_five_minutes_go_as_the_page_says(new_environment: Path, tmp_path: Path) -> None:
    printed = []
    for language, block in blocks(START):
        if language == "python":
            printed.append(typed(["python", "-c", block], new_environment, tmp_path))
        for line in block.splitlines() if not language else ():
            if line.startswith("fedmap "):
                printed.append(shortly(line, new_environment, tmp_path))
    inspected, compared, trained, asked, exported, card = printed
    assert "17 of 20 clients miss at least one of 10 classes" in inspected
    assert (tmp_path / "inspect.png").exists()
    assert "map[preset=own]" in compared
    assert "runs/first" in trained
    assert "Ankle boot" in asked
    assert "client-7.safetensors" in exported
    assert "fashion-mini" in card


def test_the_first_lines_install_fedmap_as_the_environment_does() -> None:
    for page in (GUIDE, START):
        lines = commands(page)
        venv = lines.index("python3 -m venv .venv")
        assert lines[venv + 1] == ". .venv/bin/activate"
        assert re.fullmatch(r"pip install -c constraints.txt ('\.\[onnx\]'|\.)", lines[venv + 2])
