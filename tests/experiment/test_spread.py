"""Runs that are spread over a cluster, as far as it goes without one; tests/federation has one."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fedmap.experiment.runs import RunWork
from fedmap.experiment.spread import Traveler, end, go_on
from fedmap.federation import Federation
from fedmap.simulate import cluster
from fedmap.simulate.callbacks import Callback, Start
from fedmap.simulate.folder import Record
from fedmap.simulate.result import Result
from fedmap.simulate.settings import Settings


def test_calls_that_nobody_waits_for_have_ended_before_the_driver_leaves() -> None:
    did: list[tuple[str, Any]] = []
    ray: Any = SimpleNamespace(
        cancel=lambda call, force: did.append(("cancel", call)),
        wait=lambda calls, num_returns, timeout: did.append(("wait", (calls, num_returns))),
    )
    end(ray, ["one", "other"])
    assert did == [("cancel", "one"), ("cancel", "other"), ("wait", (["one", "other"], 2))]
    did.clear()
    end(ray, [])
    assert did == []  # Ray refuses to wait for nothing


class Diary(Callback):
    """Writes into the run's folder, as a tracker does, and writes down what it is told."""

    told: list[Any] = []

    def on_start(self, start: Start) -> None:
        assert start.folder is not None
        (start.folder / "track").mkdir(exist_ok=True)
        (start.folder / "track" / "diary").write_text("begun")
        self.told.append(("start", len(start.rounds)))

    def on_round(self, record: Record) -> None:
        self.told.append(record["round"])

    def on_end(self, result: Result | None) -> None:
        self.told.append(("end", None if result is None else len(result.rounds)))


def test_callbacks_of_a_run_that_travels_stay_at_the_driver(
    federation: Federation, tmp_path: Path
) -> None:
    Diary.told.clear()
    given = {"data": "synthetic", "net": "tiny", "method": "fedavg", "rounds": 3, "epochs": 0.2}
    run = RunWork(Settings.of(given), federation=federation, callbacks=[Diary])
    traveler = Traveler(run, tmp_path, lambda step, now: None)
    packed = cluster.pack(federation)
    while not traveler.home:
        files = traveler.files()
        assert not any(name.startswith("track") for name in files)
        kind, back = go_on(cluster.versions(), run.resolved, {}, packed, files, 0.0)
        assert kind == "done", back
        traveler.take(back)
    traveler.unlock()
    assert Diary.told == [("start", 0), 1, 2, 3, ("end", 3)]
    assert (tmp_path / run.name / "track" / "diary").read_text() == "begun"


def test_of_a_traveler_that_is_left_the_callbacks_hear_no_result(
    federation: Federation, tmp_path: Path
) -> None:
    Diary.told.clear()
    settings = Settings.of({"data": "synthetic", "net": "tiny", "method": "fedavg", "rounds": 3})
    run = RunWork(settings, federation=federation, callbacks=[Diary])
    traveler = Traveler(run, tmp_path, lambda step, now: None)
    traveler.files()
    traveler.unlock()
    assert Diary.told == [("start", 0), ("end", None)]
    run.go(tmp_path, lambda step, now: None)  # what a tracker has left is not in the way
    assert run.finished(tmp_path)
