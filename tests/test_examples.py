"""The examples run as they stand, from any folder, and print what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def printed(name: str, folder: Path) -> str:
    """What an example prints when it is run in this folder."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / name)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shares(text: str) -> list[float]:
    """Every percentage in a text."""
    return [float(share) for share in re.findall(r"([\d.]+)%", text)]


def test_methods_are_compared_on_clients_that_miss_classes(tmp_path: Path) -> None:
    text = printed("compare.py", tmp_path)
    assert "client 0 has 305 samples of [2, 3]\n" in text
    lines = {line.split()[0]: shares(line) for line in text.splitlines() if "%" in line}
    assert set(lines) == {"fedavg", "fedrs", "map"}
    for name, (of_global, personal) in lines.items():
        assert 50 < of_global < personal, name  # chance is 10 %; a client's own classes are easier
    assert lines["fedrs"][0] == lines["map"][0]  # the first stage of MAP is FedRS


def test_a_method_of_ones_own_is_checked_and_run(tmp_path: Path) -> None:
    first, fedavg, median = printed("own_method.py", tmp_path).splitlines()
    assert first == "Median holds what every method must hold"
    assert fedavg.startswith("fedavg: ")
    assert median.startswith("median: ")
    assert 50 < shares(median)[0] < shares(fedavg)[0]  # the price that the example speaks of


def test_a_site_of_ones_own_arrays_asks_its_personal_model(tmp_path: Path) -> None:
    of_global, personal, last = printed("own_arrays.py", tmp_path).splitlines()
    assert shares(of_global)[0] > 75  # each site knows two of the four states
    assert shares(personal)[0] > 90
    assert last == "it takes the last one, broken, for broken"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_first_what_it_shows(example: Path) -> None:
    text = example.read_text()
    assert text.startswith('"""')
    assert len(text.splitlines()) < 40


def test_every_example_is_run_here() -> None:
    here = Path(__file__).read_text()
    for example in EXAMPLES.glob("*.py"):
        assert f'printed("{example.name}"' in here, f"no test runs {example.name}"
