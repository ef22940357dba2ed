"""A checkpoint has two generations: where the newest round is damaged, the one before takes its
place."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedmap
from fedmap.federation import Federation
from fedmap.methods import METHODS
from fedmap.methods.map import MAP
from fedmap.values import Values

SMALL: dict[str, Any] = {
    "net": "tiny", "rounds": 4, "fraction": 0.5, "epochs": 1, "batch": 20, "lr": 0.1,
}  # fmt: skip


class StopError(Exception):
    pass


def stopped(federation: Federation, out: Path, round: int = 3, method: str = "map") -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] == round:
            raise StopError

    with pytest.raises(StopError):
        fedmap.run(method, federation, out=out, on_round=stop, **SMALL)


def flip(path: Path, where: int = -3) -> None:
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[where] ^= 1
    path.write_bytes(content)


def flip_state(out: Path) -> None:
    """One bit of a state that the last round made."""
    last = json.loads((out / "rounds.jsonl").read_text().splitlines()[-1])
    states = out / "checkpoint/states.bin"
    size = (states.stat().st_size - 8) // 12  # of six clients' two slots each
    client = last["clients"][0]["client"]
    content = states.read_bytes()
    rounds = [
        int.from_bytes(content[(2 * client + slot) * size :][:8], "little") for slot in (0, 1)
    ]
    flip(states, (2 * client + rounds.index(3)) * size + 64)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "server-3.safetensors is damaged": lambda out: flip(out / "checkpoint/server-3.safetensors"),
    "server-3.safetensors is damaged: its": lambda out: os.unlink(
        out / "checkpoint/server-3.safetensors"
    ),
    "commit.json is damaged": lambda out: os.truncate(out / "checkpoint/commit.json", 20),
    "commit.json is missing": lambda out: os.unlink(out / "checkpoint/commit.json"),
    "rounds.jsonl is damaged": lambda out: flip(out / "rounds.jsonl"),
    "'s state (round 3) is damaged": flip_state,
}


def measured(result: fedmap.Result) -> list[dict[str, Any]]:
    without = ("seconds", "note")
    return [{n: v for n, v in record.items() if n not in without} for record in result.rounds]


def models(folder: Path) -> dict[str, bytes]:
    paths = [*folder.glob("*.safetensors"), *folder.glob("personal/*"), folder / "final.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("sentence", DAMAGE)
def test_a_damaged_round_is_done_again_from_the_one_before_to_the_same_bits(
    sentence: str, federation: Federation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = fedmap.run("map", federation, out=tmp_path / "whole", **SMALL)
    out = tmp_path / "run"
    stopped(federation, out)
    DAMAGE[sentence](out)
    resumed = fedmap.run("map", federation, out=out, resume=True, **SMALL)
    assert measured(resumed) == measured(whole)
    assert models(out) == models(tmp_path / "whole")
    told = resumed.rounds[2]["note"]
    assert sentence in told
    assert told.endswith("the run goes on from round 2, the last whole one")
    assert f"fedmap: {told}\n" in capsys.readouterr().err
    assert "note" not in resumed.rounds[3]


def test_after_a_fall_back_there_are_two_generations_again(
    federation: Federation, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stopped(federation, out)
    for _ in range(2):
        flip(out / "checkpoint/server-3.safetensors")

        def stop(record: dict[str, Any]) -> None:
            raise StopError

        with pytest.raises(StopError):
            fedmap.run("map", federation, out=out, resume=True, on_round=stop, **SMALL)
    resumed = fedmap.run("map", federation, out=out, resume=True, **SMALL)
    assert measured(resumed) == measured(fedmap.run("map", federation, **SMALL))


@pytest.mark.parametrize("names", [("server-3", "server-2"), ("commit", "commit-before")])
def test_where_both_are_damaged_or_lost_the_run_is_refused_and_nothing_is_changed(
    names: tuple[str, str], federation: Federation, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stopped(federation, out)
    for name in names:
        (file,) = (out / "checkpoint").glob(f"{name}.*")
        file.unlink()
    before = (out / "checkpoint/states.bin").read_bytes()[:-8]
    with pytest.raises(fedmap.FedmapError, match="nor is the round before it whole, so the run"):
        fedmap.run("map", federation, out=out, resume=True, **SMALL)
    assert (out / "checkpoint/states.bin").read_bytes()[:-8] == before
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 3


@pytest.mark.parametrize("damage", [os.unlink, lambda path: os.truncate(path, 5)])
def test_the_first_round_is_done_again_where_it_alone_is_lost(
    damage: Callable[[Path], None], federation: Federation, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    stopped(federation, out, round=1)
    damage(out / "checkpoint/commit.json")
    resumed = fedmap.run("map", federation, out=out, resume=True, **SMALL)
    assert measured(resumed) == measured(fedmap.run("map", federation, **SMALL))


def test_records_damaged_in_an_earlier_round_are_refused(
    federation: Federation, tmp_path: Path
) -> None:
    stopped(federation, tmp_path / "run")
    flip(tmp_path / "run/rounds.jsonl", 5)
    with pytest.raises(fedmap.FedmapError, match=r"rounds\.jsonl is damaged: its checksum differs"):
        fedmap.run("map", federation, out=tmp_path / "run", resume=True, **SMALL)


def test_killed_within_the_next_round_a_damaged_one_is_refused_where_clients_keep_states(
    federation: Federation, tmp_path: Path
) -> None:
    """Two slots: what round 4 wrote took the place of what round 2 left."""

    class Fails(MAP):
        def aggregate(self, server: Any, state: Values, uploads: Any) -> Values:
            if server.round == 4:
                raise StopError
            return super().aggregate(server, state, uploads)

    given = SMALL | {"fraction": 1.0, "out": tmp_path / "run"}
    with METHODS.lent("fails", Fails):
        with pytest.raises(StopError):
            fedmap.run("fails", federation, **given)
        flip(tmp_path / "run/checkpoint/server-3.safetensors")
        with pytest.raises(fedmap.FedmapError, match="nor is the round before it whole"):
            fedmap.run("fails", federation, resume=True, **given)
