"""The path of a new user, word by word: the guide's commands in a fresh environment, from
`pip install` to models in use. Only the training is shorter."""

import re
import shlex
import site
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs/guide/first-models.md"
LESS = "--rounds 1 --epochs 0.1"  # of an option that is given twice, the last one counts
MOST_COMMANDS = 5


def commands() -> list[str]:
    """The lines of the guide's blocks, in their order."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    return [line for language, block in blocks if not language for line in block.splitlines()]


def path_of(word: str) -> list[str]:
    """The commands that are about the folders, or about the table."""
    return [line for line in commands() if line.startswith("fedmap ") and word in line]


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with fedmap installed from the source, as the guide says. What fedmap needs is
    borrowed from this environment; fedmap itself is not."""
    folder = tmp_path_factory.mktemp("new") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    (packages,) = folder.glob("lib/python*/site-packages")
    # A folder in a .pth file is searched, but its own .pth files, such as the one that leads to
    # this source, are not read.
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()))
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", str(ROOT)], check=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def user_folder(bin_folder: Path) -> Path:
    """Where the user works, with files to train on."""
    for line in commands():
        if line.startswith("python scripts/"):
            words = [str(bin_folder / "python"), str(ROOT / shlex.split(line)[1])]
            subprocess.run(
                [*words, *shlex.split(line)[2:]], cwd=bin_folder.parent, check=True, timeout=120
            )
    return bin_folder.parent


@pytest.mark.parametrize("word", ["branches", "digits"])
def test_a_new_user_gets_from_files_to_models_in_use(
    word: str, bin_folder: Path, user_folder: Path
) -> None:
    for line in path_of(word):
        words = shlex.split(line)[1:]
        words += shlex.split({"run": LESS, "compare": f"{LESS} --seeds 0"}.get(words[0], ""))
        done = subprocess.run(
            [bin_folder / "fedmap", *words], cwd=user_folder, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    assert "probability" in answers(user_folder, bin_folder, word)
    model = "bodo.onnx" if word == "branches" else "digits.onnx"
    assert (user_folder / model).stat().st_size > 1000


def answers(folder: Path, bin_folder: Path, word: str) -> str:
    """What the last model says, asked once more."""
    (line,) = (line for line in path_of(word) if line.startswith("fedmap predict"))
    asked = [str(bin_folder / "fedmap"), *shlex.split(line)[1:]]
    return subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("word", ["branches", "digits"])
def test_five_commands_are_enough(word: str) -> None:
    assert 3 <= len(path_of(word)) <= MOST_COMMANDS
