"""Callbacks: when they are told what, and that nothing they do reaches the run."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fedmap
from fedmap.errors import FedmapError
from fedmap.simulate.callbacks import Callback, Start
from fedmap.simulate.folder import Record
from fedmap.simulate.result import Result

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 3, "epochs": 0.2}


class Diary(Callback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_start(self, start: Start) -> None:
        self.start = start
        self.told.append(("start", [record["round"] for record in start.rounds]))

    def on_round(self, record: Record) -> None:
        self.told.append(record["round"])

    def on_end(self, result: Result | None) -> None:
        self.told.append(("end", None if result is None else len(result.rounds)))


class Bad(Callback):
    """Fails at one of its three, after it has spoiled all that it was given."""

    def __init__(self, where: str, error: type[Exception] = OSError) -> None:
        self.where = where
        self.error = error
        self.asked: list[str] = []

    def _fail(self, where: str) -> None:
        torch.manual_seed(3)
        self.asked.append(where)
        if where == self.where:
            raise self.error("the disk\nis full")

    def on_start(self, start: Start) -> None:
        start.rounds.clear()
        start.federation.clear()
        self._fail("on_start")

    def on_round(self, record: Record) -> None:
        record.clear()
        self._fail("on_round")

    def on_end(self, result: Result | None) -> None:
        self._fail("on_end")


def stop_after(round: int) -> Any:
    def on_round(record: Record) -> None:
        if record["round"] == round:
            raise KeyboardInterrupt

    return on_round


def test_a_callback_is_told_of_the_start_of_every_round_and_of_the_end(
    federation: fedmap.Federation,
) -> None:
    diary = Diary()
    fedmap.run("fedavg", federation, callbacks=[diary], **SMALL)
    assert diary.told == [("start", []), 1, 2, 3, ("end", 3)]


def test_the_start_says_settings_federation_and_folder(
    federation: fedmap.Federation, tmp_path: Path
) -> None:
    diary = Diary()
    fedmap.run("fedavg", federation, callbacks=[diary], out=tmp_path / "run", **SMALL)
    assert diary.start.settings.label == "fedavg"
    assert diary.start.federation["classes"] == list(federation.dataset.classes)
    assert diary.start.folder == tmp_path / "run"
    fedmap.run("fedavg", federation, callbacks=[diary], **SMALL)
    assert diary.start.folder is None


def test_of_a_stopped_run_the_end_has_no_result_and_the_next_start_the_rounds_before(
    federation: fedmap.Federation, tmp_path: Path
) -> None:
    first, second = Diary(), Diary()
    with pytest.raises(KeyboardInterrupt):
        fedmap.run(
            "map",
            federation,
            out=tmp_path,
            callbacks=[first],
            on_round=stop_after(2),
            **SMALL,
        )
    fedmap.run("map", federation, out=tmp_path, resume=True, callbacks=[second], **SMALL)
    assert first.told == [("start", []), 1, 2, ("end", None)]
    assert second.told == [("start", [1, 2]), 3, ("end", 3)]


def test_of_a_finished_run_all_rounds_are_told_at_once(
    federation: fedmap.Federation, tmp_path: Path
) -> None:
    fedmap.run("fedavg", federation, out=tmp_path, **SMALL)
    diary = Diary()
    fedmap.run("fedavg", federation, out=tmp_path, callbacks=[diary], **SMALL)
    assert diary.told == [("start", [1, 2, 3]), ("end", 3)]


@pytest.mark.parametrize("where", ["on_start", "on_round", "on_end"])
def test_a_callback_that_fails_is_told_no_more_and_changes_nothing(
    where: str,
    federation: fedmap.Federation,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    alone = fedmap.run("map", federation, out=tmp_path / "alone", validation=0.2, **SMALL)
    bad, diary = Bad(where), Diary()
    run = fedmap.run(
        "map", federation, out=tmp_path / "run", validation=0.2, callbacks=[bad, diary], **SMALL
    )
    assert bad.asked[-1] == where
    assert bad.asked.count(where) == 1
    assert diary.told[-1] == ("end", 3)
    assert capsys.readouterr().err == (
        f"fedmap: the callback Bad failed in {where} (OSError: the disk is full); it is told no "
        "more of this run, which goes on without it\n"
    )
    assert run.final == alone.final
    for file in (tmp_path / "alone").rglob("*.safetensors"):
        twin = tmp_path / "run" / file.relative_to(tmp_path / "alone")
        assert twin.read_bytes() == file.read_bytes()


def test_a_callback_can_refuse_the_run_before_it_begins(federation: fedmap.Federation) -> None:
    diary = Diary()
    with pytest.raises(FedmapError, match="is full"):
        fedmap.run("map", federation, callbacks=[diary, Bad("on_start", FedmapError)], **SMALL)
    assert diary.told == [("start", []), ("end", None)]


def test_with_several_workers_nothing_is_told_twice(federation: fedmap.Federation) -> None:
    diary = Diary()
    fedmap.run("fedavg", federation, callbacks=[diary], workers=2, **SMALL)
    assert diary.told == [("start", []), 1, 2, 3, ("end", 3)]
