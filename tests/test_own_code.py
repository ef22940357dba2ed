"""Methods given as classes; data and partitions in a file of the user's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import FedAvg, FedRS
from fedmap.own_code import full_name, is_code, short_name
from fedmap.simulate import Result

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 1, "fraction": 1.0, "epochs": 1}
FEW = "--method fedavg --net mlp --rounds 1 --epochs 0.1 --workers 1"
TEXT = """
import numpy as np
from fedmap import Federation
from fedmap.data import from_clients, synthetic

def clients():
    rng = np.random.default_rng(0)
    pair = lambda: (rng.random((20, 6)), np.arange(20) % 4)
    return {"oslo": pair(), "bergen": pair()}

def load():
    return from_clients(clients())

def pool():
    return synthetic(classes=4, train=60, test=20, shape=(6,))

def federation():
    return Federation.from_arrays(clients(), seed=3)

def half(given, rng, first: int = 0):
    return np.where(np.arange(len(given.labels)) % given.clients == first, 0, 1)

def empty(given, rng):
    return np.zeros(len(given.labels), int)

def breaks(*given):
    return 1 / 0

def three():
    return 3

number = 3
"""


class Mine(FedRS):
    """A method of this file."""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "mine.py"


@pytest.mark.parametrize(
    ("name", "code", "short"),
    [
        ("mine.py:Net", True, "Net"),
        ("a:b/mine.py:Net", True, "Net"),
        ("mine.py", False, "mine.py"),
        ("mine.py:", False, "mine.py:"),
        ("csv:table.csv", False, "csv:table.csv"),
        ("text.txt:Net", False, "text.txt:Net"),
        ("python:12345678:Net", False, "Net"),
        (3, False, None),
    ],
)
def test_only_a_python_file_with_a_name_in_it_is_code(
    name: Any, code: bool, short: str | None
) -> None:
    assert is_code(name) is code
    if short is not None:
        assert short_name(name) == short
        assert (full_name(name) != name) is code


# A class for a method.


def test_a_registered_class_is_the_method_of_its_name(federation: Federation) -> None:
    assert fedmap.run(FedAvg, federation, **SMALL).settings.method == "fedavg"


def test_a_class_trains_as_its_base_does_and_is_marked_in_run_toml(
    federation: Federation, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    own = fedmap.run(Mine, federation, out=out, workers=2, params={"alpha": 0.2}, **SMALL)
    base = fedmap.run("fedrs", federation, params={"alpha": 0.2}, **SMALL)
    assert own.rounds[0]["train_loss"] == base.rounds[0]["train_loss"]
    assert own.settings.label == "Mine"
    assert 'method = "python:' in (out / "run.toml").read_text()
    with pytest.raises(FedmapError, match=r"method Mine was given in Python.*resume=True"):
        Result.read(out).personal_model(0)
    assert Result.read(out, method=Mine).personal_model(0) is not None
    assert fedmap.run(Mine, federation, out=out, params={"alpha": 0.2}, **SMALL).final == own.final


def test_classes_are_compared_and_swept(tmp_path: Path) -> None:
    given: dict[str, Any] = {"data": "synthetic", "clients": 3} | SMALL
    compared = fedmap.compare([FedAvg, Mine], out=tmp_path / "compared", **given)
    assert list(compared.results) == ["fedavg", "Mine"]
    swept = fedmap.sweep(Mine, {"alpha": [0.1, 0.9]}, out=tmp_path / "swept", **given)
    assert list(swept.results) == ["Mine[alpha=0.1]", "Mine[alpha=0.9]"]


@pytest.mark.parametrize("method", [3, Federation, FedAvg()])
def test_what_is_no_method_is_refused(method: Any, federation: Federation) -> None:
    with pytest.raises(
        FedmapError, match=r"a name, FILE\.py:CLASS or a subclass of fedmap\.Method"
    ):
        fedmap.run(method, federation, **SMALL)


# Data and partitions.


def test_data_of_a_file_is_what_its_function_gives(mine: Path) -> None:
    dataset = fedmap.load("mine.py:load")
    assert (dataset.name, dataset.client_names) == ("mine.py:load", ("oslo", "bergen"))
    assert fedmap.partition(dataset).origin["data"] == f"{mine.resolve()}:load"


@pytest.mark.parametrize("name", ["load", "federation"])
def test_a_run_on_data_of_a_file_is_repeated_and_resumed(
    name: str, mine: Path, fedmap: Callable[[str], Any]
) -> None:
    done = fedmap(f"run --data ./mine.py:{name} --out run {FEW}")
    assert done.returncode == 0, done.stderr
    assert (mine.parent / "run/personal/oslo.safetensors").exists()
    assert fedmap("run run/run.toml --out again --trust").returncode == 0
    rounds = [(mine.parent / name / "final.json").read_bytes() for name in ("run", "again")]
    assert rounds[0] == rounds[1]
    assert fedmap("resume run --rounds 2 --trust").returncode == 0
    mine.write_text(TEXT.replace("default_rng(0)", "default_rng(1)"))
    done = fedmap("run run/run.toml --out third --trust")
    assert f"the file of data {mine.resolve()}:{name} changed" in " ".join(done.stderr.split())


def test_a_federation_of_a_file_leaves_nothing_to_choose(
    mine: Path, fedmap: Callable[[str], Any]
) -> None:
    for option, said in (("--clients 3", "--clients"), ("--partition iid", "--partition")):
        done = fedmap(f"run --data mine.py:federation {option} {FEW}")
        sentence = " ".join(done.stderr.split())
        assert f"gives a whole federation of 2 clients, so {said} cannot be chosen" in sentence


def test_a_partition_of_a_file_draws_with_its_checked_parameters(mine: Path) -> None:
    data = fedmap.load("mine.py:pool")
    one = fedmap.partition(data, 2, kind="./mine.py:half")
    assert one.origin["partition"] == f"{mine.resolve()}:half"
    assert one.origin["partition_params"] == {"first": 0}
    other = fedmap.partition(data, 2, kind="./mine.py:half", first=1)
    held = [torch.cat([drawn.train[0], drawn.test[0]]) for drawn in (one, other)]
    assert [sorted(numbers.tolist()) for numbers in held] == [
        [*range(0, 60, 2)],
        [*range(1, 60, 2)],
    ]
    with pytest.raises(FedmapError, match=r"half has no parameter 'last'; .*there are: first"):
        fedmap.partition(data, 2, kind="./mine.py:half", last=1)


def test_a_partition_of_a_file_is_drawn_on_the_command_line(
    mine: Path, fedmap: Callable[[str], Any]
) -> None:
    drawn = "--data mine.py:pool --partition mine.py:half --partition-param first=1 --clients 2"
    assert fedmap(f"partition {drawn}").returncode == 0
    done = fedmap(f"run {drawn} --out run {FEW}")
    assert done.returncode == 0, done.stderr
    assert fedmap("run run/run.toml --out again --trust").returncode == 0


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: fedmap.load("mine.py:number"), "number is no function without arguments"),
    (lambda: fedmap.load("mine.py:three"), "gives a int; a fedmap Dataset is needed"),
    (lambda: fedmap.load("mine.py:federation"), "gives a Federation; a fedmap Dataset is needed"),
    (lambda: fedmap.load("mine.py:breaks"), "breaks fails when it is called: ZeroDivisionError"),
    (lambda: fedmap.load("mine.py:load", scale="none"), "load takes no --scale"),
    (lambda: fedmap.load("mine.py"), "data mine.py names a file but nothing in it"),
    (lambda: drawn("mine.py:empty"), "must give each of the 60 samples to one of the clients"),
    (lambda: drawn("mine.py:number"), "number is no function"),
    (lambda: drawn("mine.py:none"), "mine.py has no 'none'; there are: "),
    (lambda: drawn("mine.py"), "partition .*mine.py names a file but nothing in it"),
]


def drawn(kind: str) -> Federation:
    return fedmap.partition(fedmap.load("mine.py:pool"), 2, kind=kind)


@pytest.mark.parametrize(("wrong", "says"), WRONG)
def test_what_cannot_be_used_is_one_clear_sentence(
    wrong: Callable[[], Any], says: str, mine: Path
) -> None:
    with pytest.raises(FedmapError, match=says):
        wrong()
