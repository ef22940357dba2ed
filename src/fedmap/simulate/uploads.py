"""What arrives at the server is checked before it is used: names, shapes and types, finite values,
and how far it moves compared with the others of the round."""

from collections.abc import Mapping
from statistics import median

import torch
from torch import Tensor

from fedmap.client import Client
from fedmap.errors import DivergenceError, FedmapError
from fedmap.federation import ClientData
from fedmap.random import generator, seeded_torch
from fedmap.simulate.tasks import Reply, Setup
from fedmap.values import Values, on

Kinds = dict[str, tuple[tuple[int, ...], torch.dtype]]  # shape and type of each entry


def checked(setup: Setup, round: int, down: Values, replies: list[Reply]) -> list[Reply]:
    """The replies, a bad one without its content and with the reason. With `on_bad_upload` stop,
    the first bad one ends the run."""
    arrived = [reply for reply in replies if not reply.reason]
    faults = _faults(down, arrived, setup.settings.norm_bound)
    if faults and setup.settings.on_bad_upload == "stop":
        key, fault = next(iter(faults.items()))
        raise _stopped(f"{setup.federation.client_names[key]} in round {round}: {fault}", fault)
    return [Reply(r.key, reason=faults[r.key]) if r.key in faults else r for r in replies]


def _stopped(what: str, fault: str) -> FedmapError:
    left = "not finite" in fault or "norm_bound" in fault  # what comes of training, not of a form
    kind = DivergenceError if left else FedmapError
    return kind(f"the upload of {what}; on_bad_upload = 'skip' would leave it out")


def _faults(down: Values, replies: list[Reply], bound: float) -> dict[int, str]:
    """What is wrong with whose upload."""
    if not replies:
        return {}
    expected = kinds(replies[0].up)
    faults = {r.key: fault for r in replies if (fault := misfit(r.up, expected))}
    lengths = {r.key: _lengths(r.up, down) for r in replies if r.key not in faults}
    faults |= {key: fault for key, of in lengths.items() if (fault := _not_finite(of))}
    lengths = {key: of for key, of in lengths.items() if key not in faults}
    for name in expected:
        size = float(torch.linalg.vector_norm(down[name].double())) if name in down else 0.0
        faults |= _far(name, {k: of[name] for k, of in lengths.items() if name in of}, size, bound)
    return faults


def kinds(values: Mapping[str, Tensor]) -> Kinds:
    """Shape and type of each entry."""
    return {name: (tuple(value.shape), value.dtype) for name, value in values.items()}


def misfit(up: Mapping[str, Tensor], expected: Kinds) -> str:
    """Which entry is missing, not known, or of another shape or type; nothing if none is."""
    found = kinds(up)
    for name in expected.keys() ^ found.keys():
        what = "is missing" if name in expected else "is not known"
        return f"entry {name!r} {what}; expected are {', '.join(expected)}"
    for name, (shape, dtype) in expected.items():
        if found[name] != (shape, dtype):
            is_shape, is_dtype = found[name]
            return f"entry {name!r} is {is_dtype} of {is_shape}, not {dtype} of {shape}"
    return ""


def _lengths(up: Mapping[str, Tensor], down: Values) -> dict[str, float]:
    """How long each entry is: the way from what came down, where that has the same entry."""
    lengths = {}
    for name, value in up.items():
        if value.is_floating_point():
            before = down.get(name)
            moved = value if before is None or before.shape != value.shape else value - before
            lengths[name] = float(torch.linalg.vector_norm(moved))
    return lengths


def _not_finite(lengths: dict[str, float]) -> str:
    for name, length in lengths.items():
        if not length < float("inf"):
            return f"entry {name!r} has values that are not finite, or are too large to be squared"
    return ""


def _far(name: str, lengths: dict[int, float], size: float, bound: float) -> dict[int, str]:
    """Who is many times as far as the others usually are, and as what came down is long: a client
    of one class may hardly move at all, and the others must not be blamed for it."""
    faults = {}
    for key, length in lengths.items():
        others = [other for k, other in lengths.items() if k != key]
        # Without anything to compare with, one other does not say what is usual.
        usual = max(median(others), size) if len(others) > (not size) else size
        if usual and length > bound * usual:
            faults[key] = (
                f"entry {name!r} has moved by {length:.3g}, where {usual:.3g} is usual; at most "
                f"{bound:g} times as far is allowed (norm_bound)"
            )
    return faults


def expected_kinds(setup: Setup) -> Kinds:
    """Names, shapes and types of the entries that any client uploads, for who has no client's code
    to trust: a newcomer's round on made-up samples."""
    method, dataset = setup.method, setup.federation.dataset
    classes = len(dataset.classes)
    rng = generator(setup.settings.seed, "made-up samples")
    pixels = torch.from_numpy(rng.integers(0, 256, (2 * classes, *dataset.shape)))
    x, y = pixels.to(dataset.train_x.dtype), torch.arange(classes).repeat(2)
    counts = torch.full((classes,), 2)
    data = ClientData(0, (x, y), (x, y), counts, counts > 0, dataset.mean, dataset.std, False)
    client = Client(data, 1, setup.settings, setup.settings.seed, setup.models, 1.0)
    setup.models.release()
    with torch.enable_grad(), seeded_torch(setup.settings.seed, "made-up samples"):
        state = on(method.client_state(setup.initial), setup.device)
        down = on(method.download(method.start(setup.initial)), setup.device)
        up = method.local_round(client, down, state).up
    return kinds(up)
