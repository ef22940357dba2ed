"""Did it help, and whom? Each client with a method's models, beside what it has from training
alone, or from another method that is chosen to compare with."""

from collections.abc import Sequence
from statistics import mean
from typing import Any, NamedTuple

from fedmap.report.table import Table, percent
from fedmap.simulate.result import Result

ALONE = "local"  # the method in which every client trains alone
GLOBAL = "global"  # compared with its own run's global model
SPOKEN = {ALONE: "training alone", GLOBAL: "the global model"}
CAPTION = "Accuracy in % on each client's own test samples"


class Served(NamedTuple):
    """One client in one run, or over all seeds. Accuracies are on its own test samples; None where
    not known."""

    method: str
    client: str
    seed: int | None
    local: float | None  # of the model that it trained alone, or has with the baseline
    global_: float | None
    personal: float | None
    observed: float | None  # of the personal model, among the client's own classes

    @property
    def gain(self) -> float | None:
        """What the personal model has over training alone, or over the baseline."""
        known = self.personal is not None and self.local is not None
        return self.personal - self.local if known else None  # type: ignore[operator]


def finished(run: Result) -> bool:
    """Has it come to its end, where every client is tested?"""
    return "personal_accuracy_per_client" in run.final


def served(results: dict[str, list[Result]], baseline: str = ALONE) -> list[Served]:
    """Every client of every finished run, but for those of the baseline: a label, else a method, or
    `global` for each run's own global model."""

    def is_base(label: str, run: Result) -> bool:
        return baseline == (label if baseline in results else run.settings.method)

    ended = [(label, run) for label, runs in results.items() for run in filter(finished, runs)]
    alone = {
        _drawn(run): run.final["personal_accuracy_per_client"]
        for label, run in ended
        if is_base(label, run)
    }
    return [
        Served(label, name, run.settings.seed, *numbers)
        for label, run in ended
        if not is_base(label, run)
        for name, *numbers in zip(*_columns(run, alone.get(_drawn(run)), baseline), strict=True)
    ]


def _drawn(run: Result) -> tuple[int, int | None, int]:
    """Runs of the same seeds and number of clients have the same clients."""
    clients = len(run.final["personal_accuracy_per_client"])
    return run.settings.seed, run.settings.partition_seed, clients


def _columns(run: Result, alone: list[float | None] | None, baseline: str) -> list[Sequence[Any]]:
    final = run.final
    personal: list[float | None] = final["personal_accuracy_per_client"]
    names = final.get("client_names") or [f"client {k}" for k in range(len(personal))]
    unknown = [None] * len(personal)
    also = ("global_accuracy_per_client", "personal_accuracy_observed_per_client")
    shared, observed = (final.get(name, unknown) for name in also)
    base = shared if baseline == GLOBAL else alone or unknown
    return [names, base, shared, personal, observed]


def gains(clients: Sequence[Served]) -> list[float]:
    """The gains of those of which both numbers are known."""
    return [gain for one in clients if (gain := one.gain) is not None]


def points(values: Sequence[float]) -> str:
    """The mean of differences, in points of a per cent, with its sign; a dash without any."""
    return f"{100 * mean(values):+.1f}" if values else "-"


def losers(values: Sequence[float]) -> str:
    """How many of the clients are worse off than alone."""
    return f"{sum(value < 0 for value in values)} of {len(values)}" if values else "-"


def clients_table(clients: Sequence[Served], baseline: str = ALONE) -> Table:
    """One line for each method, seed and client."""
    base = baseline if baseline != GLOBAL else "global model"
    head = [*("method", "seed", "client", base, "global", "personal", "own classes")]
    lines = [
        [one.method, str(one.seed), one.client]
        + [percent([value]) for value in (one.local, one.global_, one.personal, one.observed)]
        + [points(gains([one]))]
        for one in clients
    ]
    return Table(CAPTION, [*head, f"gain over {base}"], lines)


def over_seeds(clients: Sequence[Served]) -> list[Served]:
    """Each client of each method once, with its means over seeds: for clients that are the same
    with every seed. A mean is known where all its numbers are."""
    same: dict[tuple[str, str], list[Served]] = {}
    for one in clients:
        same.setdefault((one.method, one.client), []).append(one)

    def means(found: list[Served]) -> list[float | None]:
        columns = zip(*(one[3:] for one in found), strict=True)
        return [None if None in column else mean(column) for column in columns]

    return [Served(*who, None, *means(found)) for who, found in same.items()]


def by_client(clients: Sequence[Served]) -> Table:
    """One line for each client: what it has alone, and with each method, with the gain in
    brackets. Every client is there once for each method."""
    methods = list(dict.fromkeys(one.method for one in clients))
    names = list(dict.fromkeys(one.client for one in clients))
    found = {(one.client, one.method): one for one in clients}
    alone = {one.client: one.local for one in clients if one.local is not None}
    lines = [
        [name, *[percent([alone.get(name)])] * bool(alone)]
        + [_with_gain(found.get((name, method))) for method in methods]
        for name in names
    ]
    return Table(CAPTION, ["client", *[ALONE] * bool(alone), *methods], lines)


def _with_gain(one: Served | None) -> str:
    if one is None:
        return "-"
    gain = f" ({points(gains([one]))})" if one.gain is not None else ""
    return percent([one.personal]) + gain


def sentences(clients: Sequence[Served], pooled: Sequence[str]) -> list[str]:
    """What came out for the clients in plain words: for each method, and which is the best.
    `pooled` are the methods that break the federation's rule."""
    found = {
        method: mine
        for method in dict.fromkeys(one.method for one in clients)
        if (mine := gains([one for one in clients if one.method == method]))
    }
    said = [f"{method}: {_gain_and_loss(mine)}" for method, mine in found.items()]
    said += _most({method: mine for method, mine in found.items() if method not in pooled})
    return said + [
        f"{method} has all samples in one place, which breaks the federation's rule: it is there "
        "to compare with"
        for method in pooled
    ]


def _gain_and_loss(mine: list[float]) -> str:
    up, down = sum(gain > 0 for gain in mine), sum(gain < 0 for gain in mine)
    clients = "client" if len(mine) == 1 else "clients"
    return (
        f"{up} of {len(mine)} {clients} {_verb('gain', up)} over training alone, "
        f"{down} {_verb('lose', down)}; {points(mine)} points in the mean over all"
    )


def _verb(verb: str, count: int) -> str:
    return f"{verb}s" if count == 1 else verb


def _most(found: dict[str, list[float]]) -> list[str]:
    """Which of several methods has the most gain, if any has one."""
    if len(found) < 2:
        return []
    most = max(mean(mine) for mine in found.values())
    if most <= 0:
        return ["no method is better than training alone, in the mean over all clients"]
    first = [method for method, mine in found.items() if points(mine) == points([most])]
    have = "have" if len(first) > 1 else "has"
    return [
        f"{' and '.join(first)} {have} the most gain over training alone: {points([most])} points "
        "in the mean over all"
    ]
