"""A site's private files, whatever the server's orders and wherever a crash comes."""

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmap.errors import FedmapError
from fedmap.flower.states import Moment, States
from fedmap.values import Values

RUN = "0123456789abcdef"


def initial() -> Values:
    return {"value": torch.zeros(3), "rounds": torch.tensor(0)}


def state(number: int) -> Values:
    return {"value": torch.full((3,), float(number)), "rounds": torch.tensor(number)}


def states(root: Path) -> States:
    """As a new process finds them."""
    return States(root, RUN, "oslo", initial())


class CrashError(Exception):
    pass


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_crash_while_a_state_is_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    states(tmp_path).keep(Moment(1, 1), 0, state(1))

    def crash(*_: object) -> None:
        raise CrashError

    monkeypatch.setattr(os, moment, crash)
    with pytest.raises(CrashError):
        states(tmp_path).keep(Moment(1, 2), 1, state(2))
    monkeypatch.undo()
    found, note = states(tmp_path).before(Moment(1, 2), 1)
    assert int(found["rounds"]) == 1
    assert note == ""
    states(tmp_path).keep(Moment(1, 2), 1, state(2))
    assert int(states(tmp_path).before(Moment(1, 3), 2)[0]["rounds"]) == 2


class Event(NamedTuple):
    """What happens with one round at a site."""

    answers: bool  # does its answer count at the server?
    repeated: bool  # does the order come twice?
    server_restarts: bool  # after the site has worked, before the round is committed


events = st.lists(st.builds(Event, st.booleans(), st.booleans(), st.booleans()), max_size=12)


@settings(max_examples=50)  # each state is brought to the disk
@given(events)
def test_whatever_counts_a_round_begins_with_the_last_state_that_does(history: list[Event]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, start, counted = Path(folder), 1, 0
        for round, event in enumerate(history, 1):
            for _ in range(1 + event.repeated + event.server_restarts):
                found, note = states(root).before(Moment(start, round), counted)
                assert (int(found["rounds"]), note) == (counted, "")
                states(root).keep(Moment(start, round), counted, state(round))
                start += event.server_restarts
            counted = round if event.answers else counted


def test_a_server_that_has_gone_back_two_rounds_finds_a_newcomer(tmp_path: Path) -> None:
    for round in (1, 2, 3):
        states(tmp_path).keep(Moment(1, round), round - 1, state(round))
    found, note = states(tmp_path).before(Moment(2, 2), 1)
    assert int(found["rounds"]) == 0
    assert "the state of round 1" in note
    assert "newcomer" in note


def test_a_new_start_of_the_server_counts_more_than_a_later_round(tmp_path: Path) -> None:
    states(tmp_path).keep(Moment(1, 5), 0, state(5))
    states(tmp_path).before(Moment(2, 3), 0)
    with pytest.raises(FedmapError, match=r"an old order \(round 4 of start 1\)"):
        states(tmp_path).before(Moment(1, 4), 0)


def test_runs_and_sites_do_not_see_each_others_states(tmp_path: Path) -> None:
    states(tmp_path).keep(Moment(1, 1), 0, state(1))
    other = States(tmp_path, "f" * 16, "oslo", initial())
    assert int(other.before(Moment(1, 1), 0)[0]["rounds"]) == 0
    assert "newcomer" in other.before(Moment(1, 2), 1)[1]


@pytest.mark.parametrize("run", ["", "../../etc", "0123456789ABCDEF", "0123456789abcde"])
def test_a_run_cannot_have_a_name_that_leads_elsewhere(tmp_path: Path, run: str) -> None:
    with pytest.raises(FedmapError, match="is not the name of a run"):
        States(tmp_path, run, "oslo", initial())


def test_a_state_keeps_its_shapes(tmp_path: Path) -> None:
    with pytest.raises(FedmapError, match="changed its entries or shapes"):
        states(tmp_path).keep(Moment(1, 1), 0, {"value": torch.zeros(4), "rounds": torch.tensor(0)})
