"""check_method: one battery for every method, fedmap's own and anybody's. It needs no data and
takes about a second."""

import contextlib
import pickle
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, cast, get_args, get_origin

import numpy as np
import torch
from pydantic.fields import FieldInfo
from torch import Tensor, nn

from fedmap import values as files
from fedmap.check import leaks
from fedmap.client import Client
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS, AnyMethod, Local, Server, Upload, find_method
from fedmap.nets import NETS, Net
from fedmap.random import generator
from fedmap.simulate import Result
from fedmap.simulate.run import run
from fedmap.simulate.store import TICKET
from fedmap.values import Values, nbytes

SHAPE, CLASSES, ROUNDS = (1, 6, 6), 4, 2
# labels of each client: all miss classes, the second has only one
HELD = [(0, 2) * 5, (1,) * 8, (0, 2, 3) * 4, (1, 2)]


def check_method(method: str | type[AnyMethod], **params: Any) -> None:
    """Assert what every method must hold, for a registered name, a `file.py:Class` or a class;
    `params` are not the defaults.

    An AssertionError says which of these fails, and how: it refuses parameters outside their range;
    it runs two rounds on clients that miss classes, one of which has a single class, on a plain net
    and on one with batch norm; its losses and uploads are finite; it draws from no global random
    generator (torch's is seeded for layers such as dropout); it leaves what it is given as it was;
    its states keep their form and survive a save and load; no upload holds an entry of the state,
    follows samples or labels in another way than by training, or has an entry that is not trained
    from the download, unless `sends` explains it; the record's bytes are what goes down and up; two
    workers, and a stop and resume, give the same bits as one uninterrupted process."""
    checked = find_method(method)
    try:
        refuses_wrong_parameters(checked, params)
        with NETS.lent("plain", plain):
            leaks_nothing(leaks.keeps_shapes, checked(**params))
        for net, features in (("plain", plain), ("batch-norm", batch_norm)):
            with NETS.lent(net, features), tempfile.TemporaryDirectory() as folder:
                holds_on(net, checked, params, Path(folder))
        with NETS.lent("plain", plain):
            leaks_nothing(leaks.look, checked(**params))
    except AssertionError as broken:
        raise AssertionError(f"method {checked.name()}: {broken}") from broken.__cause__


def plain(shape: tuple[int, ...], classes: int) -> Net:
    """One hidden layer, with dropout: what it draws must follow from the seed too."""
    layers = (nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Dropout(0.2))
    return Net(nn.Sequential(*layers), 8, classes)


def batch_norm(shape: tuple[int, ...], classes: int) -> Net:
    """Batch norm of both kinds: with a moving average, and with a mean that counts its batches."""
    norms = nn.BatchNorm2d(4), nn.BatchNorm2d(4, momentum=None)
    first = nn.Conv2d(1, 4, 3, stride=2)
    return Net(nn.Sequential(first, norms[0], nn.ReLU(), norms[1], nn.Flatten()), 16, classes)


@cache
def federation() -> Federation:
    """Four tiny clients with few samples, and a global test set of all classes."""
    rng = generator(0, "check")
    centers = rng.standard_normal((CLASSES, *SHAPE), np.float32)

    def samples(labels: Sequence[int]) -> tuple[Any, Any]:
        y = np.array(labels)
        return centers[y] + 0.3 * rng.standard_normal((len(y), *SHAPE), np.float32), y

    return Federation.from_arrays([samples(labels) for labels in HELD], samples(range(CLASSES)))


def require(holds: bool, sentence: str) -> None:
    """An assertion that stays one under `python -O`."""
    if not holds:
        raise AssertionError(sentence)


# Parameters.


def refuses_wrong_parameters(method: type[AnyMethod], params: dict[str, Any]) -> None:
    """One value beyond each bound, an unknown name, no choice of a list; what the class itself
    offers is accepted."""
    for offered in [params, *({"preset": name} for name in method.presets)]:
        try:
            method(**offered)
        except FedmapError as refused:
            raise AssertionError(f"it refuses {offered}: {refused}") from refused
    wrong = [
        (name, value)
        for name, field in method.Params.model_fields.items()
        for value in beyond(field)
    ]
    for name, value in [*wrong, ("no_such_parameter", 0)]:
        try:
            method(**params | {name: value})
        except FedmapError as refused:
            require(
                name in str(refused),
                f"the refusal of {name} = {value!r} does not name the parameter: {refused}",
            )
        else:
            raise AssertionError(
                f"it takes {name} = {value!r}, which is outside what its Params allow"
            )


def beyond(field: FieldInfo) -> list[Any]:
    """A value just outside each bound of a field."""
    outside: dict[str, Callable[[Any], Any]] = {
        "ge": lambda bound: bound - 1,
        "gt": lambda bound: bound,
        "le": lambda bound: bound + 1,
        "lt": lambda bound: bound,
    }
    values = [
        step(getattr(limit, kind))
        for limit in field.metadata
        for kind, step in outside.items()
        if hasattr(limit, kind)
    ]
    return values + ["no such choice"] * (
        get_origin(field.annotation) is Literal
        and "no such choice" not in get_args(field.annotation)
    )


# Runs.


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
) -> tuple[Outcome, "Notes"]:
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


def failed(wrong: Exception, what: str) -> NoReturn:
    """A property's own sentence where an engine has wrapped it; else what went wrong."""
    broken = wrong if isinstance(wrong, AssertionError) else wrong.__cause__
    if isinstance(broken, AssertionError) and str(broken):
        raise broken
    raise AssertionError(
        f"{what}: {wrong if isinstance(wrong, FedmapError) else repr(wrong)}"
    ) from wrong


def same_bits(one: Outcome, other: Outcome, when: str, net: str) -> None:
    for what, ours, others in zip(Outcome._fields, one, other, strict=True):
        require(
            ours == others,
            f"there are other bits in its {what.replace('_', ' ')} {when} (net {net}); all that a "
            "round needs must come from `down`, "
            "`state` and the server's state, none from the method object, a global generator or "
            "the order in which clients finish",
        )


def bits(values: Mapping[str, Tensor]) -> dict[str, Any]:
    """Entries such that equal means equal in type, shape and every bit."""
    return {name: (v.dtype, v.shape, as_bytes(v)) for name, v in values.items()}


def as_bytes(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


def global_generators() -> dict[str, bytes]:
    states = {
        "torch": torch.get_rng_state().numpy(),
        "numpy": np.random.get_state(),
        "Python": random.getstate(),
    }
    return {name: pickle.dumps(state) for name, state in states.items()}


# What passes between the halves.


class Notes:
    """What was seen during a run."""

    def __init__(self) -> None:
        # Round, bytes down and bytes up of each client's round.
        self.weights: list[dict[str, int]] = []
        # By round and client, as it was when its round ended.
        self.uploaded: dict[tuple[int, int], dict[str, Any]] = {}
        self.kept: dict[tuple[int, int], dict[str, Any]] = {}  # the same of the clients' states
        self.server_state: Values = {}
        self.client_states = b""


def watched(method: type[AnyMethod], notes: Notes) -> type[AnyMethod]:
    """The same method, with an eye on all that goes into and comes out of its halves."""

    def local_round(self: AnyMethod, client: Client, down: Values, state: Values) -> Local:
        now, before = (client.round, client.number), (client.round - 1, client.number)
        owner, given = f"client {client.number}", (bits(down), bits(state))
        require(
            notes.kept.get(before, given[1]) == given[1],
            f"the state that {owner} left does not survive a save and load: {form(state)} comes "
            "back",
        )
        local = method.local_round(self, client, down, state)
        _ = client.mean_loss  # raises where it is not finite
        require(
            bits(down) == given[0],
            f"{owner} changes what came down in place; other clients get the same tensors",
        )
        require(
            bits(state) == given[1],
            f"{owner} changes its old state in place; a round that is stopped could not be done "
            "again",
        )
        for what, values in local._asdict().items():
            finite_tensors(values, f"{what} of {owner}")
        require(
            form(local.state) == form(state),
            f"{owner} changes its state's entries or shapes from {form(state)} to "
            f"{form(local.state)}; `client_state` sets them for good",
        )
        # In a first round all that a client keeps may stem from what it uploads.
        if client.round > 1:
            nothing_private(self, client, local.up, {"old": state, "new": local.state})
        if client.round <= ROUNDS:
            notes.weights.append(
                {"round": client.round, "down": nbytes(down), "up": nbytes(local.up)}
            )
            notes.uploaded[now], notes.kept[now] = bits(local.up), bits(local.state)
        return local

    def aggregate(
        self: AnyMethod, server: Server, state: Values, uploads: Sequence[Upload]
    ) -> Values:
        for client, _, up in uploads:
            require(
                notes.uploaded.get((server.round, client), bits(up)) == bits(up),
                f"what client {client} uploads is overwritten before the server sees it; clone "
                "what lies in a working model",
            )
        given = bits(state)
        new = method.aggregate(self, server, state, uploads)
        require(
            bits(state) == given,
            "the server changes its old state in place; a round that is stopped could not be done "
            "again",
        )
        finite_tensors(new, "the server's state")
        survives_a_file(new)
        notes.server_state = {name: value.clone() for name, value in new.items()}
        return new

    return cast(
        type[AnyMethod],
        type(method.__name__, (method,), {"local_round": local_round, "aggregate": aggregate}),
    )


def leaks_nothing(look: Callable[[AnyMethod, str], None], method: AnyMethod) -> None:
    """What `leaks` finds, or what goes wrong on its data."""
    try:
        look(method, "plain")
    except leaks.Found as found:
        raise AssertionError(str(found)) from None
    except Exception as wrong:
        failed(wrong, "it fails on other labels or samples")


def form(values: Values) -> dict[str, str]:
    return {name: f"{v.dtype} {tuple(v.shape)}" for name, v in values.items()}


def finite_tensors(values: Values, owner: str) -> None:
    for name, value in values.items():
        require(
            isinstance(value, Tensor),
            f"{name!r} in the {owner} is a {type(value).__name__}; tensors are allowed "
            "(fedmap.values.number makes one of a number)",
        )
        require(bool(torch.isfinite(value).all()), f"{name!r} in the {owner} is not finite")


def survives_a_file(state: Values) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        try:
            path.write_bytes(files.save(state))
            back = files.load(path)
        except Exception as wrong:
            raise AssertionError(
                f"the server's state does not survive a save and load: {wrong}"
            ) from wrong
    require(
        bits(back) == bits(state),
        "the server's state does not survive a save and load: "
        f"{form(state)} comes back as {form(back)}",
    )


def nothing_private(
    method: AnyMethod, client: Client, up: Values, states: dict[str, Values]
) -> None:
    """No entry of `up` holds an entry of the state; what else it may not tell, `leaks` finds."""
    private = {
        f"its {when} state's {name!r}": v
        for when, state in states.items()
        for name, v in state.items()
    }
    for entry, value in up.items():
        for what, secret in private.items():
            require(
                entry in method.sends or not holds(value, secret),
                f"client {client.number} uploads {what} in {entry!r}; if the method is meant to, "
                "say why in `sends`",
            )


def holds(value: Tensor, secret: Tensor) -> bool:
    """Are the secret's numbers somewhere in the value, one after the other, up to a factor and a
    constant? Two numbers, or equal ones, tell nothing."""
    inside, wanted = value.reshape(-1).double(), secret.reshape(-1).double()
    if len(wanted) > len(inside) or len(wanted) < 3 or bool((wanted == wanted[0]).all()):
        return False
    windows = inside.unfold(0, len(wanted), 1)
    alike = torch.nn.functional.cosine_similarity(
        windows - windows.mean(1, keepdim=True), (wanted - wanted.mean())[None]
    )
    return bool((alike.abs() > 1 - leaks.EXACT).any())
