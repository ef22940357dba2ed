"""The same bits with one worker, with two and after a stop; no global generator; bytes as they are
recorded."""

import contextlib
import pickle
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fedmap import values as files
from fedmap.check.require import failed, require
from fedmap.check.watched import Notes, bits, watched
from fedmap.check.world import ROUNDS, federation
from fedmap.methods import METHODS, AnyMethod
from fedmap.simulate import Result
from fedmap.simulate.run import run
from fedmap.simulate.store import TICKET


class Outcome(NamedTuple):
    """All that a run leaves, in a form in which equal means the same bits."""

    records: Any
    summary: Any
    server_state: Any
    client_states: bytes
    personal_models: Any


class Stopped(Exception):  # noqa: N818 (nothing is wrong)
    """Raised after the first round to stop a run."""


def holds_on(net: str, method: type[AnyMethod], params: dict[str, Any], folder: Path) -> None:
    """Every property that takes a run, on one net."""
    before = global_generators()
    one, notes = outcome(net, method, params, folder / "one")
    for name, state in global_generators().items():
        require(
            state == before[name],
            f"it draws from {name}'s global random generator; only `client.rng` and `server.rng` "
            "give the same bits",
        )
    for record in one.records:
        for way in ("down", "up"):
            weight = sum(note[way] for note in notes.weights if note["round"] == record["round"])
            recorded = record[f"bytes_{way}"]
            require(
                recorded == weight,
                f"round {record['round']} records {recorded} bytes {way}, but the dictionaries "
                f"that went {way} weigh {weight}",
            )
    same_bits(
        one,
        outcome(net, method, params, folder / "two", workers=2)[0],
        "with two workers instead of one",
        net,
    )
    same_bits(
        one,
        outcome(net, method, params, folder / "resumed", stop=True)[0],
        "after a stop and resume",
        net,
    )


def outcome(
    net: str,
    method: type[AnyMethod],
    params: dict[str, Any],
    out: Path,
    workers: int = 1,
    stop: bool = False,
) -> tuple[Outcome, Notes]:
    """Run the method, stopped after the first round and resumed if so wished."""
    notes = Notes()
    with METHODS.lent(method.name(), watched(method, notes)):

        def go(stop: bool, resume: bool) -> Result:
            def on_round(record: dict[str, Any]) -> None:
                states = (out / "checkpoint" / "states.bin").read_bytes()
                notes.client_states = states[: -TICKET.size]
                if stop:
                    raise Stopped

            settings: dict[str, Any] = {
                "rounds": ROUNDS,
                "fraction": 1.0,
                "epochs": 1,
                "batch": 4,
                "net": net,
                "workers": workers,
            }
            return run(
                method.name(),
                federation(),
                out=out,
                resume=resume,
                progress=False,  # in a notebook a bar would draw from Python's generator
                on_round=on_round,
                params=params,
                **settings,
            )

        try:
            if stop:
                with contextlib.suppress(Stopped):
                    go(stop=True, resume=False)
            result = go(stop=False, resume=stop)
        except Exception as wrong:
            failed(
                wrong,
                f"it fails on net {net} with {workers} "
                f"worker(s){' after a stop and resume' if stop else ''}",
            )
    records = [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in result.rounds
    ]
    personal = [bits(files.load(path)) for path in sorted((out / "personal").iterdir())]
    return Outcome(
        records, result.final, bits(notes.server_state), notes.client_states, personal
    ), notes


def same_bits(one: Outcome, other: Outcome, when: str, net: str) -> None:
    for what, ours, others in zip(Outcome._fields, one, other, strict=True):
        require(
            ours == others,
            f"there are other bits in its {what.replace('_', ' ')} {when} (net {net}); all that a "
            "round needs must come from `down`, "
            "`state` and the server's state, none from the method object, a global generator or "
            "the order in which clients finish",
        )


def global_generators() -> dict[str, bytes]:
    states = {
        "torch": torch.get_rng_state().numpy(),
        "numpy": np.random.get_state(),
        "Python": random.getstate(),
    }
    return {name: pickle.dumps(state) for name, state in states.items()}
