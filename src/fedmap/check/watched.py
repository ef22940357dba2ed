"""A method with an eye on all that passes between its halves: finite, unchanged, kept, and nothing
private in an upload."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from fedmap import values as files
from fedmap.check import leaks
from fedmap.check.require import require
from fedmap.check.world import ROUNDS
from fedmap.client import Client
from fedmap.methods import AnyMethod, Local, Server, Upload
from fedmap.values import Values, nbytes


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


def bits(values: Mapping[str, Tensor]) -> dict[str, Any]:
    """Entries such that equal means equal in type, shape and every bit."""
    return {name: (v.dtype, v.shape, as_bytes(v)) for name, v in values.items()}


def as_bytes(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()


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
