"""A diagnosis of a federation and of a run: what is said, drawn and refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmap
from fedmap.diagnosis.diagnose import flags
from fedmap.diagnosis.words import sentences
from fedmap.federation import Federation

SMALL: dict[str, Any] = {"net": "tiny", "epochs": 1.0, "batch": 8, "lr": 0.05}
OPTIONS = "--data synthetic --net mlp --clients 4 --epochs 0.2"


@pytest.fixture(scope="module")
def diagnosis(federation: Federation) -> fedmap.Diagnosis:
    return fedmap.inspect(federation, **SMALL)


@pytest.fixture(scope="module")
def run(federation: Federation, tmp_path_factory: pytest.TempPathFactory) -> fedmap.Result:
    folder = tmp_path_factory.mktemp("runs") / "map"
    return fedmap.run("map", federation, rounds=3, fraction=1, out=folder, **SMALL)


def test_every_subject_has_a_sentence(diagnosis: fedmap.Diagnosis) -> None:
    subjects = ["missing classes", "imbalance", "sizes", "proxies", "after a download"]
    assert list(diagnosis.sentences) == subjects
    assert f"{diagnosis.numbers.missing_mean:.1f} on average" in diagnosis.sentences[subjects[0]]


def test_where_few_samples_count_as_none_it_is_said(diagnosis: fedmap.Diagnosis) -> None:
    few = sentences(replace(diagnosis.numbers, observed_from=2, together=0.5))
    assert "below 2 training samples" in few["missing classes"]
    assert "without one sample" not in few["proxies"]
    assert "one direction" not in few["proxies"]
    none = sentences(replace(diagnosis.numbers, observed_from=1, together=0.95))
    assert "without one sample" in none["proxies"]
    assert "one direction" in none["proxies"]


def test_an_average_that_is_better_is_called_a_gain(diagnosis: fedmap.Diagnosis) -> None:
    better = sentences(replace(diagnosis.numbers, accuracy=0.5, download=0.6))
    assert "a gain of 10.0 points" in better["after a download"]


def test_the_figure_has_a_picture_of_each_kind(diagnosis: fedmap.Diagnosis, tmp_path: Path) -> None:
    titles = [axes.get_title(loc="left") for axes in diagnosis.figure().axes]
    assert len(titles) == 4
    assert diagnosis.save(tmp_path / "a.png").stat().st_size > 10_000


def test_the_dots_of_the_figure_are_the_accuracies(diagnosis: fedmap.Diagnosis) -> None:
    (axes,) = (a for a in diagnosis.figure().axes if "download" in a.get_title(loc="left"))
    drawn = {
        dots.get_label(): np.asarray(dots.get_offsets())[:, 1].tolist() for dots in axes.collections
    }
    assert drawn["own model after its round"] == [100 * t.accuracy for t in diagnosis.trained]
    assert drawn["the next download"] == [100 * t.download for t in diagnosis.trained]


def test_json_has_everything(diagnosis: fedmap.Diagnosis) -> None:
    told = json.loads(json.dumps(diagnosis.json()))
    assert told["numbers"]["drop"] == diagnosis.numbers.drop
    assert [one["client"] for one in told["trained"]] == [
        f"client {one.client}" for one in diagnosis.trained
    ]
    assert len(told["advice"]) == len(diagnosis.advice)


def test_a_notebook_shows_sentences_and_studies(diagnosis: fedmap.Diagnosis) -> None:
    shown = diagnosis._repr_html_()
    assert "times as far" in shown
    assert diagnosis.advice[0].page in shown


def test_a_run_begins_with_its_global_model(federation: Federation) -> None:
    one, two = (
        fedmap.run("fedavg", federation, rounds=rounds, fraction=1, **SMALL) for rounds in (1, 2)
    )
    diagnosis = fedmap.inspect(one, federation=federation)
    assert diagnosis.numbers.start == "the run's global model"
    second = {record["client"]: record["accuracy"] for record in two.rounds[1]["clients"]}
    assert {one.client: one.accuracy for one in diagnosis.trained} == second


def test_a_run_and_its_folder_give_the_same(run: fedmap.Result, federation: Federation) -> None:
    of_folder = fedmap.inspect(run.folder, federation=federation)
    assert of_folder.numbers == fedmap.inspect(run, federation=federation).numbers


def test_a_run_tells_the_means_of_its_last_rounds(
    run: fedmap.Result, federation: Federation
) -> None:
    numbers = fedmap.inspect(run, federation=federation).numbers
    assert numbers.run is not None
    downloads = [record["personal_accuracy_download"] for record in run.rounds]
    assert numbers.run["download"] == pytest.approx(sum(downloads) / 3)
    assert "map, 3 rounds" in fedmap.inspect(run, federation=federation).sentences["the run"]


def test_a_run_on_arrays_needs_them_again() -> None:
    clients = [(np.eye(6, dtype=np.float32), np.arange(6) % 2) for _ in range(2)]
    arrays = fedmap.Federation.from_arrays(clients)
    result = fedmap.run("fedavg", arrays, rounds=1, **SMALL)
    assert fedmap.inspect(result, federation=arrays).numbers.clients == 2
    with pytest.raises(fedmap.FedmapError, match="give them again"):
        fedmap.inspect(result)


def test_a_run_of_other_data_is_refused(run: fedmap.Result, images: Federation) -> None:
    with pytest.raises(fedmap.FedmapError, match="changed"):
        fedmap.inspect(run, federation=images)


def test_a_method_without_a_global_model_begins_as_new(federation: Federation) -> None:
    result = fedmap.run("fedrep", federation, rounds=1, fraction=1, **SMALL)
    assert fedmap.inspect(result, federation=federation).numbers.start == "the initial model"


def test_the_commands_lead_to_the_same_data(diagnosis: fedmap.Diagnosis) -> None:
    given = {
        "data": "csv:my table.csv",
        "label_column": "digit",
        "categories": ("a", "b"),
        "partition_params": {"alpha": 0.5},
        "net": "mlp",
        "epochs": 3,
    }
    assert flags(given) == [
        *("--data", "csv:my table.csv", "--categories", "a,b", "--label", "digit"),
        *("--partition-param", "alpha=0.5", "--net", "mlp"),
    ]


def test_the_command_says_what_and_saves_its_figure(fedmap: Any, tmp_path: Path) -> None:
    done = fedmap(f"inspect {OPTIONS} --plot a.png")
    assert done.returncode == 0, done.stderr
    assert "of 4 clients miss at least one" in done.stdout
    assert "backed by: " in done.stdout
    assert "--data synthetic --clients 4 --net mlp" in done.stdout
    assert (tmp_path / "a.png").exists()


def test_the_command_looks_at_a_run(fedmap: Any) -> None:
    assert fedmap(f"run --method map {OPTIONS} --rounds 1 --workers 1 --out r").returncode == 0
    done = fedmap("inspect r --json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["numbers"]["start"] == "the run's global model"
    assert "--data synthetic" in told["advice"][0]["command"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("inspect nowhere", "nowhere"),
        ("inspect nowhere --clients 3", "has its own --clients"),
        ("inspect --data nothing", "nothing"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(fedmap: Any, arguments: str, words: str) -> None:
    done = fedmap(arguments)
    assert done.returncode == 1
    assert words in done.stderr
