"""A newcomer gets a personal model from a finished run."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedmap as library
from fedmap import values
from fedmap.client import Client
from fedmap.data import Dataset, load, synthetic
from fedmap.errors import FedmapError
from fedmap.federation import ClientData, Federation, partition
from fedmap.methods import METHODS
from fedmap.nets import build
from fedmap.simulate.result import Result, named_values
from fedmap.use.adapt import adapt, with_features
from fedmap.use.find import model_file
from fedmap.use.model import UsableModel
from fedmap.vector import Model, WorkingModels

Finished = Callable[..., Result]  # the fixture in conftest.py
Fedmap = Callable[[str], Any]
CLASSES = {"class 1": 1, "class 3": 3}  # what the newcomer has, and where the run has it


@pytest.fixture
def newcomer(tmp_path: Path) -> str:
    """60 vectors of two of the run's four classes, under their names."""
    drawn = synthetic(classes=4, train=120, test=4, shape=(6,))
    chosen = torch.isin(drawn.train_y, torch.tensor(list(CLASSES.values())))
    labels = [f"class {label}" for label in drawn.train_y[chosen].tolist()]
    (tmp_path / "new").mkdir()
    np.savez(tmp_path / "new/bergen.npz", x=drawn.train_x[chosen], y=labels)
    return f"npz:{tmp_path / 'new'}"


def in_the_runs_classes(newcomer: str) -> Dataset:
    """The newcomer's samples with the labels that the run has for their classes."""
    dataset = load(newcomer)
    places = torch.tensor([CLASSES[name] for name in dataset.classes])
    classes = tuple(f"class {number}" for number in range(4))
    return replace(dataset, train_y=places[dataset.train_y], classes=classes)


def test_a_newcomer_trains_the_final_download_with_its_own_stream(
    finished: Finished, newcomer: str, tmp_path: Path
) -> None:
    """Scaffold's download has a control variate beside the model."""
    run, method = finished("scaffold", "tiny-bn", of="vectors"), METHODS["scaffold"]()
    found = adapt(run.folder, newcomer, tmp_path / "out")

    own = ClientData.of(in_the_runs_classes(newcomer), number=6, seed=1)

    def make() -> Any:
        return build("tiny-bn", (6,), 4, run.settings.seed)

    client = Client(own, 3, run.settings, run.settings.seed, WorkingModels(make), 1.0)
    initial = Model(make())
    down = values.load(run.folder / "server.safetensors")
    assert set(down) == {"model", "control"}
    expected = method.local_round(client, down, method.client_state(initial)).personal
    written = values.load(found.file)
    for name, tensor in named_values(initial, expected).items():
        assert torch.equal(written[name], tensor), name


@pytest.mark.parametrize("method", sorted(METHODS))
def test_both_accuracies_are_those_of_the_models_on_the_newcomers_test_samples(
    method: str, finished: Finished, newcomer: str, tmp_path: Path
) -> None:
    run = finished(method, "tiny-bn", of="vectors")
    found = adapt(run.folder, newcomer, tmp_path / "out")
    x, y = ClientData.of(in_the_runs_classes(newcomer), number=6, seed=1).test
    assert (found.training_samples, found.test_samples) == (48, 12)
    personal = UsableModel.read(found.file)
    assert personal.notes.observed == tuple(CLASSES.values())
    right = int((personal.logits(x).argmax(1) == y).sum())
    assert found.personal_accuracy == right / 12
    of_all = run.folder / "global.safetensors"
    if not of_all.exists():
        assert found.global_accuracy is None
    else:
        right = int((UsableModel.read(of_all).logits(x).argmax(1) == y).sum())
        assert found.global_accuracy == right / 12


def test_a_newcomer_of_a_run_with_validation_trains_on_all_of_its_samples(
    federation: Federation, newcomer: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"net": "tiny", "rounds": 3, "epochs": 1, "batch": 20}
    run = library.run("fedavg", federation, out=tmp_path / "run", validation=0.2, **given)
    found = adapt(run.folder, newcomer, tmp_path / "out")
    assert found.training_samples == 48
    x, y = ClientData.of(in_the_runs_classes(newcomer), number=6, seed=1).test
    best = UsableModel.read(run.folder / "global.safetensors")
    assert found.global_accuracy == int((best.logits(x).argmax(1) == y).sum()) / len(y)


def test_the_same_newcomer_gets_the_same_bytes_again(
    finished: Finished, newcomer: str, tmp_path: Path
) -> None:
    run = finished("map", "tiny-bn", of="vectors")
    first, second = (adapt(run.folder, newcomer, tmp_path / name).file for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_a_class_that_the_run_does_not_know_is_refused_by_name(
    finished: Finished, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((4, 6)), y=["class 0", "wolf"] * 2)
    with pytest.raises(FedmapError, match="newcomer has samples of class 'wolf', which is none of"):
        adapt(finished("fedavg", "tiny", of="vectors").folder, f"npz:{tmp_path}", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_newcomers_table_is_read_as_the_runs_were(tmp_path: Path) -> None:
    """The label has its column, a value of a category that it never has is a column of zeros, and
    the order of columns is the run's."""
    rng = np.random.default_rng(0)

    def table(path: Path, rows: int, colors: str, head: str) -> None:
        lines = [head]
        for _ in range(rows):
            color, a = rng.choice(list(colors)), rng.normal()
            cells = {"sold": "yes" if a > 0 else "no", "color": color, "a": f"{a:.3f}"}
            cells["shop"] = rng.choice(["oslo", "bergen"])
            lines.append(",".join(cells[name] for name in head.split(",")))
        path.write_text("\n".join(lines))

    table(tmp_path / "all.csv", 80, "rgb", "shop,sold,color,a")
    table(tmp_path / "new.csv", 30, "b", "a,color,sold")
    federation = partition(
        load(
            f"csv:{tmp_path / 'all.csv'}",
            label_column="sold", client_column="shop", categories=["color"],
        )
    )  # fmt: skip
    run = library.run("fedavg", federation, net="mlp", rounds=1, out=tmp_path / "run")
    found = adapt(run.folder, f"csv:{tmp_path / 'new.csv'}", tmp_path / "out")
    assert model_file(tmp_path / "out") == found.file
    with pytest.raises(FedmapError, match="has a newcomer's model already"):
        adapt(run.folder, f"csv:{tmp_path / 'new.csv'}", tmp_path / "out")
    assert (found.training_samples, found.test_samples) == (24, 6)
    dataset = load(f"csv:{tmp_path / 'new.csv'}", label_column="sold", categories=["color"])
    features = ("color=b", "color=g", "color=r", "a")
    aligned = with_features(dataset, features)
    assert aligned.features == features
    assert torch.equal(aligned.train_x[:, 3], dataset.train_x[:, 0])
    assert aligned.train_x[:, :3].unique(dim=0).tolist() == [[1, 0, 0]]
    assert with_features(dataset, ("color=g", "a")) is dataset  # it has a color that is not known
    (tmp_path / "other.csv").write_text("sold,a\nyes,1\nno,2\n")
    with pytest.raises(FedmapError, match="there is no column 'color'"):
        adapt(run.folder, f"csv:{tmp_path / 'other.csv'}", tmp_path / "x")
    with pytest.raises(FedmapError, match="there is no column 'kind'"):
        adapt(run.folder, f"csv:{tmp_path / 'new.csv'}", tmp_path / "x", label_column="kind")


def test_several_clients_are_no_newcomer(finished: Finished, tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=np.ones((4, 6)), y=["class 0"] * 4)
    with pytest.raises(FedmapError, match="has 2 clients; a newcomer is one"):
        adapt(finished("fedavg", "tiny", of="vectors").folder, f"npz:{tmp_path}", tmp_path / "out")


def test_a_run_without_its_server_state_is_refused(newcomer: str, tmp_path: Path) -> None:
    for name in ("run.toml", "done"):
        (tmp_path / name).touch()
    with pytest.raises(FedmapError, match=r"has no server.safetensors, from which a newcomer"):
        adapt(tmp_path, newcomer, tmp_path / "out")


def test_the_command_shows_both_accuracies_and_predict_takes_the_model(
    fedmap: Fedmap, finished: Finished, newcomer: str, tmp_path: Path
) -> None:
    run = finished("map", "tiny-bn", of="vectors")
    done = fedmap(f"adapt {run.folder} --data {newcomer} -o bergen")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "bergen/accuracy.json").read_text())
    assert f"global model {100 * report['global_accuracy']:.1f} %" in done.stdout
    assert f"personal model {100 * report['personal_accuracy']:.1f} %" in done.stdout
    asked = fedmap("predict bergen/personal.safetensors new/bergen.npz")
    assert asked.stdout.count("| new/bergen.npz row ") == 60


def test_a_newcomer_needs_no_flower() -> None:
    ask = "import sys; sys.modules['flwr'] = None; import fedmap.use.adapt"
    subprocess.run([sys.executable, "-c", ask], check=True)
