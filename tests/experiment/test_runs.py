"""A run as a piece of work: where it is kept, what it shows, and how its time is foreseen."""

from pathlib import Path

import pytest

import fedmap
from fedmap.experiment import measure
from fedmap.experiment.measure import cost, seconds_a_round
from fedmap.experiment.runs import RunWork, federation_of
from fedmap.simulate.progress import by_round
from fedmap.simulate.settings import Settings

SMALL = {
    "data": "synthetic",
    "net": "tiny",
    "clients": 4,
    "rounds": 2,
    "epochs": 0.2,
    "method": "fedavg",
}


def silent(step: int, now: str) -> None:
    pass


def test_its_folder_has_the_name_that_fedmap_run_would_give(tmp_path: Path) -> None:
    settings = Settings.of(SMALL)
    RunWork(settings).go(tmp_path, silent)
    resolved = settings.resolved(settings.federation())
    assert [path.name for path in tmp_path.iterdir()] == [resolved.name]


def test_its_result_is_that_of_a_run(tmp_path: Path) -> None:
    work = RunWork(Settings.of(SMALL | {"seed": 3}))
    work.go(tmp_path, silent)
    given = {name: value for name, value in SMALL.items() if name not in ("data", "clients")}
    federation = fedmap.partition(fedmap.load("synthetic"), 4, seed=3)
    direct = fedmap.run(federation=federation, seed=3, **given)  # type: ignore[arg-type]
    assert work.result(tmp_path).final == direct.final


def test_it_is_done_when_it_has_reached_its_end(tmp_path: Path) -> None:
    work = RunWork(Settings.of(SMALL))
    assert not work.done(tmp_path)
    work.go(tmp_path, silent)
    assert work.done(tmp_path)
    assert not work.diverged(tmp_path)


def test_a_run_that_diverges_says_so_and_is_done(tmp_path: Path) -> None:
    work = RunWork(Settings.of(SMALL | {"lr": 1e8}))
    seen: list[tuple[int, str]] = []
    work.go(tmp_path, lambda step, now: seen.append((step, now)))
    assert seen[-1] == (2, "diverged")
    assert work.diverged(tmp_path)
    assert work.done(tmp_path)


def test_it_is_called_by_its_method_and_seed_unless_named() -> None:
    settings = Settings.of(SMALL | {"seed": 5})
    assert RunWork(settings).label == "fedavg #5"
    assert RunWork(settings, "mine").label == "mine"


def test_a_round_is_shown_with_both_accuracies() -> None:
    seen: list[tuple[int, str]] = []
    show = by_round(lambda step, now: seen.append((step, now)))
    show({"round": 7, "global_accuracy": 0.5, "personal_accuracy": 0.034})
    show({"round": 8, "global_accuracy": None, "personal_accuracy": 0.9})
    assert seen == [(7, "global 50.0%  personal  3.4%"), (8, "global    -   personal 90.0%")]


def test_runs_of_one_federation_share_it_and_others_do_not() -> None:
    first = Settings.of(SMALL)
    same = Settings.of(SMALL | {"method": "map", "lr": 0.5, "rounds": 9})
    other = Settings.of(SMALL | {"seed": 1})
    shared = federation_of(first)
    assert federation_of(same) is shared
    assert federation_of(other) is not shared


def test_a_round_takes_its_training_steps_and_the_scoring_divided_among_the_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure, "seconds_a_training_step", lambda *key: 0.5)
    monkeypatch.setattr(measure, "cost", lambda method, **params: 3.0)
    given = {"fraction": 0.5, "epochs": 2, "batch": 10, "workers": 2}
    settings = Settings.of(SMALL | given)
    federation = federation_of(settings)
    samples = float(federation.counts.sum()) / 4
    training = 2 * (samples / 10 * 2) * 3.0
    scoring = len(federation.test_y) / 10 / 3
    assert seconds_a_round(settings, federation) == pytest.approx(0.5 * (training + scoring) / 2)


def test_no_method_is_taken_to_be_faster_than_fedavg() -> None:
    assert cost("fedavg") == 1.0
    assert cost("map", alpha=0.5) >= 1.0
