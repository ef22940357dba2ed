"""Every command and every Python line in the README and the docs is run here, on less data than it
asks for."""

import csv
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import fedmap
from fedmap.cli.main import app
from fedmap.experiment.leaderboard import BOARDS, Board

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# followed word by word by test_guide.py
BY_THEMSELVES = [ROOT / "docs/guide/first-models.md", ROOT / "docs/start.md"]
# Added to a command: of an option that is given twice, the last one counts.
FEWER = shlex.split("--rounds 1 --epochs 0.2 --fraction 0.2 --workers 1")
LESS = [*shlex.split("--data synthetic --net tiny-wide --clients 6"), *FEWER]
# What a page leaves open, and what the world below has in its place.
STAND_INS = {
    r"runs/NAME|RUN\.\.\.|\bRUN\b|(?<=report )runs/\w+|(?<=watch )runs/\w+": "runs/small",
    r"--baseline fedavg": "--baseline map",
    r"csv:PATH": "csv:table.csv",
    r"folder:PATH": "folder:photos-of-clients",
    r"file=FILE\.csv": "file=who.csv",
    r"methods NAME": "methods map",
    r"FILE\.toml|(?<!/)\brun\.toml": "runs/small/run.toml",
    r"resume OUT": "resume runs/small",
    r"\bOUT\b": "out",
    r"--size 224": "--size 16",
}
# What cannot be run here, with the test that does.
ELSEWHERE = {
    r"^fedmap flower demo$": "tests/federation/test_flower.py",
    r"^fedmap data get": "tests/data/test_download.py",
    r"--ray-address": "tests/federation/test_ray.py",
    r"--device cuda": "tests/test_cuda.py",
    r"^fedmap report .*--serve": "tests/report/test_serve.py",
}
# A stand-in for the pre-trained nets of docs/guide/own-net.md, which need torchvision and timm.
FROZEN = """

class Frozen(Net):
    def __init__(self, shape, classes):
        super().__init__(shape, classes)
        self.features.requires_grad_(False)
"""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def lines(page: Path) -> list[str]:
    """The lines of blocks for a shell, without comments."""
    languages = ("", "bash", "sh", "shell", "console")
    found = [block for language in languages for block in blocks(page, language)]
    return [line.partition(" #")[0].strip() for block in found for line in block.splitlines()]


def commands(page: Path) -> list[str]:
    """Lines that begin with `fedmap`, in blocks and alone in back quotes."""
    found = [*lines(page), *re.findall(r"`(fedmap [^`]+)`", page.read_text())]
    return [line for line in dict.fromkeys(found) if line.startswith("fedmap ")]


def elsewhere(command: str) -> list[str]:
    """The tests that run a command which cannot be run here."""
    return [test for pattern, test in ELSEWHERE.items() if re.search(pattern, command)]


ALL = sorted({one for page in PAGES if page not in BY_THEMSELVES for one in commands(page)})
HERE = [command for command in ALL if not elsewhere(command)]


def code_of(page: str) -> str:
    """The first Python block of a page."""
    return blocks(ROOT / page, "python")[0]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What commands speak of: own images and tables, code of one's own, and a finished run."""
    folder, rng = tmp_path_factory.mktemp("world"), np.random.default_rng(0)
    (folder / "mine.py").write_text(
        code_of("docs/own-method.md") + code_of("docs/guide/own-net.md") + FROZEN
    )
    for path in ("photos", *(f"photos-of-clients/{c}/{k}" for c in "ab" for k in "xyz")):
        (folder / path).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 256, (16, 16), np.uint8)
            Image.fromarray(pixels).save(folder / path / f"{number}.png")
    shutil.copytree(folder / "photos-of-clients/a", folder / "newcomer")
    names = ["digit", "site", "sold", "shop", "color", "kind", "width"]
    rows = [[i % 3, i % 2, i % 3, i % 2, "red", "old", i] for i in range(40)]
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    who = [f"{(c + k) % 6},{c}\n" for c in range(10) for k in range(2)]
    (folder / "who.csv").write_text("client,class\n" + "".join(who))
    federation = fedmap.partition(fedmap.load(f"folder:{folder / 'photos-of-clients'}", size=16))
    small: dict[str, Any] = {"net": "tiny", "rounds": 1, "epochs": 0.2, "keep_states": True}
    fedmap.run("map", federation, out=folder / "runs/small", **small)
    return folder


@pytest.fixture
def in_world(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work in."""
    here = tmp_path / "world"
    shutil.copytree(world, here)
    monkeypatch.chdir(here)
    return here


def filled(command: str) -> list[str]:
    """The words after `fedmap`, with something real in place of what is left open."""
    for pattern, stand_in in STAND_INS.items():
        command = re.sub(pattern, stand_in, command)
    words = shlex.split(command)[1:]
    if "--categories" not in words and "csv:table.csv" in words:
        words += ["--categories", "color,kind"]
    return words


def less(words: list[str]) -> list[str]:
    """What makes a command short. Own data, own nets and the settings of a file stay what they
    are."""
    own = any(
        re.search(r"^(folder|csv):|\.toml$|^\./mine\.py:(Net|Frozen)", word) for word in words
    )
    fewer = FEWER if own else LESS
    if words in (["run"], ["compare"], ["sweep"]):  # a command's name, and not what to type
        return ["--help"]
    if words[0] == "study" and len(words) > 1:  # tests/paper runs every study to its end
        return ["--scale", "smoke", "--plan", "--workers", "1", "--seeds", "0"]
    return {
        "run": fewer,
        "compare": [*fewer, "--seeds", "0"],
        "sweep": [*fewer, "--seeds", "0", *(["--trials", "2"] if "--trials" in words else [])],
        "inspect": ["--epochs", "0.2"] if "runs/small" not in words else [],
        "resume": ["--rounds", "2"] if "--rounds" in words else [],
        "demo": ["--rounds", "1", "--workers", "1"],
    }.get(words[0], [])


def test_the_docs_have_commands() -> None:
    assert len(HERE) > 60


@pytest.fixture
def _small_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaderboards in no time; tests/experiment has a whole one."""
    small = Board("", {"data": "synthetic", "clients": 6, "rounds": 1}, (0,))
    for name in BOARDS:
        monkeypatch.setitem(BOARDS, name, small)
    monkeypatch.setattr("fedmap.experiment.leaderboard.contenders", lambda board: ["fedavg"])


@pytest.mark.usefixtures("_small_boards")
@pytest.mark.parametrize("command", HERE)
def test_a_command_of_the_docs_runs(command: str, in_world: Path) -> None:
    words = filled(command)
    if "--renew-server" in words:
        CliRunner().invoke(app, ["flower", "keys", words[2], "--sites", "oslo"])
    done = CliRunner().invoke(app, [*words, *less(words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("command", sorted(set(ALL) - set(HERE)))
def test_a_command_that_is_run_elsewhere_has_its_test(command: str) -> None:
    for test in elsewhere(command):
        assert (ROOT / test).exists(), test


# own-method.md is followed by test_own_method.py, start.md by test_guide.py
PYTHON = [
    page
    for page in PAGES
    if blocks(page, "python") and page.name not in ("own-method.md", "start.md")
]


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
def test_the_python_lines_of_a_page_run(page: Path, in_world: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((40, 6), np.float32), np.arange(40) % 4
    names: dict[str, Any] = {"fedmap": fedmap, "__name__": "page"}
    names |= {"x0": x, "y0": y, "x1": x, "y1": y, "xt": x, "yt": y}
    for block in blocks(page, "python"):
        small = re.sub(r"rounds=\d+", "rounds=1, epochs=0.2, fraction=0.1", block)
        small = small.replace('"fashion-mini"', '"synthetic"').replace('"lenet"', '"mlp"')
        exec(small, names)


def scripted() -> list[tuple[str, str]]:
    """Scripts of this project with the options that the docs name."""
    pattern = r"(?:\S*python\d?) ((?:scripts|benchmarks)/\S+\.py)(.*)"
    every = [re.fullmatch(pattern, line) for page in PAGES for line in lines(page)]
    return sorted({(found[1], found[2]) for found in every if found})


@pytest.mark.parametrize(("script", "words"), scripted())
def test_a_script_of_the_docs_has_the_options_that_are_named(script: str, words: str) -> None:
    text = (ROOT / script).read_text()
    for flag in re.findall(r"--[\w-]+", words):
        assert f'"{flag}"' in text, f"{script} has no {flag}"


def test_targets_and_tests_of_the_docs_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    every = [line for page in PAGES for line in lines(page)]
    targets = {line.split()[1] for line in every if line.startswith("make ")}
    assert {"demo", "test"} <= targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for line in every:
        for path in re.findall(r"pytest .*?(tests/\S+\.py)", line):
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_docs_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
