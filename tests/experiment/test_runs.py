"""A run as a piece of work: where it is kept, what it shows, and how its time is foreseen."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import fedmap
from fedmap.experiment import measure
from fedmap.experiment.measure import Expected, Speed, cost, seconds_of_run, speed
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


def expected(monkeypatch: pytest.MonkeyPatch, sizes: list[int], **given: Any) -> Expected:
    """Of a run whose clients have so many training samples and 10 to test, 5 parts of the global
    test set, steps of 1 s and answers of 0.01 s."""
    monkeypatch.setattr(measure, "speed", lambda *key: Speed(1.0, 0.01))
    monkeypatch.setattr(measure, "cost", lambda method, **params: 3.0)
    federation: Any = MagicMock(sizes=sizes, test=[range(10)] * len(sizes), test_y=range(5000))
    federation.__len__.return_value = len(sizes)
    usual = {"fraction": 1, "epochs": 2, "batch": 10, "workers": 2}
    return Expected(Settings.of(SMALL | usual | given), federation)


def test_five_clients_on_two_workers_take_as_long_as_three_on_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = expected(monkeypatch, [100] * 5)
    client = 20 * 3.0 + 2 * 10 * 0.01  # steps at MAP's cost, and its test samples twice
    assert found.round() == pytest.approx(3 * client + 3 * 10.0)


def test_only_the_clients_of_a_round_are_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, [10, 10, 200, 200], fraction=0.5)
    # one of each kind; at least 5 steps
    assert found.round() == pytest.approx(40 * 3.0 + 0.2 + 30)


def test_samples_for_choosing_are_not_trained_on_but_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, [100] * 2, validation=0.5)
    client = 10 * 3.0 + (10 + 10 + 50) * 0.01
    assert found.round() == pytest.approx(client + 30 + 50 * 0.01)


def test_at_the_end_every_client_trains_once_more_where_it_keeps_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = expected(monkeypatch, [100] * 4, fraction=0.5, method="fedavg")
    assert found.end() == pytest.approx(2 * (20 * 3.0 + 0.1) + 2 * 0.1)


def test_where_clients_keep_a_model_only_those_train_at_the_end_that_were_never_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = expected(monkeypatch, [100] * 4, fraction=0.5, method="map", rounds=3)
    never = 0.5**3  # of a client that is drawn with probability one half
    assert found.end() == pytest.approx(2 * (never * 20 * 3.0 + 0.1) + 2 * 0.1)


def test_what_is_pooled_is_trained_by_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    found = expected(monkeypatch, [100] * 4, fraction=0.5, method="central")
    assert found.round() == pytest.approx(40 * 3.0 + 0.1 + 30)


def test_a_run_is_its_rounds_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Expected, "round", lambda self: 2.0)
    monkeypatch.setattr(Expected, "end", lambda self: 5.0)
    settings = Settings.of(SMALL | {"rounds": 7})
    assert seconds_of_run(settings, federation_of(settings)) == 19


def test_a_step_and_an_answer_are_measured() -> None:
    settings = Settings.of(SMALL)
    found = speed(settings, federation_of(settings))
    assert 0 < found.sample < found.step < 1


def test_no_method_is_taken_to_be_faster_than_fedavg() -> None:
    assert cost("fedavg") == 1.0
    assert cost("map", alpha=0.5) >= 1.0
