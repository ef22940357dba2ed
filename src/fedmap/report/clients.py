"""Did it help, and whom? Each client with a method's models, beside what it has from training
alone."""

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from fedmap.report.table import Table, percent
from fedmap.simulate.result import Result

ALONE = "local"  # the method in which every client trains alone
HEAD = ["method", "client", "local", "global", "personal", "own classes", "gain over local"]


class Served(NamedTuple):
    """One client in one run. Accuracies are on its own test samples; None where not known."""

    method: str
    seed: int
    client: str
    local: float | None  # of the model that it trained alone
    global_: float | None
    personal: float | None
    observed: float | None  # of the personal model, among the client's own classes

    @property
    def gain(self) -> float | None:
        """What the personal model has over training alone."""
        known = self.personal is not None and self.local is not None
        return self.personal - self.local if known else None  # type: ignore[operator]


def served(results: dict[str, list[Result]]) -> list[Served]:
    """Every client of every run, but for those of the clients that train alone."""
    alone = {
        run.settings.seed: run.final["personal_accuracy_per_client"]
        for runs in results.values()
        for run in runs
        if run.settings.method == ALONE
    }
    return [
        Served(label, run.settings.seed, *one)
        for label, runs in results.items()
        for run in runs
        if run.settings.method != ALONE
        for one in zip(*_columns(run, alone.get(run.settings.seed)), strict=True)
    ]


def _columns(run: Result, alone: list[float | None] | None) -> list[Sequence[object]]:
    final = run.final
    personal: list[float | None] = final["personal_accuracy_per_client"]
    names = final.get("client_names") or [f"client {k}" for k in range(len(personal))]
    unknown = [None] * len(personal)
    also = ("global_accuracy_per_client", "personal_accuracy_observed_per_client")
    shared, observed = (final.get(name, unknown) for name in also)
    return [names, alone or unknown, shared, personal, observed]


def gains(clients: Sequence[Served]) -> list[float]:
    """The gains of those of which both numbers are known."""
    return [gain for one in clients if (gain := one.gain) is not None]


def points(values: Sequence[float]) -> str:
    """The mean of differences, in points of a per cent, with its sign; a dash without any."""
    return f"{100 * mean(values):+.1f}" if values else "-"


def losers(values: Sequence[float]) -> str:
    """How many of the clients are worse off than alone."""
    return f"{sum(value < 0 for value in values)} of {len(values)}" if values else "-"


def clients_table(clients: Sequence[Served]) -> Table:
    """One line for each method and client, and for each seed where there are several."""
    several = len({one.seed for one in clients}) > 1
    head = [*HEAD[:1], *["seed"] * several, *HEAD[1:]]
    lines = [
        [one.method, *[str(one.seed)] * several, one.client]
        + [percent([value]) for value in (one.local, one.global_, one.personal, one.observed)]
        + [points(gains([one]))]
        for one in clients
    ]
    return Table("Accuracy in % on each client's own test samples", head, lines)


def sentences(results: dict[str, list[Result]]) -> list[str]:
    """What came out for the clients, one plain sentence for each method."""
    clients = served(results)
    said = []
    for label in results:
        mine = gains([one for one in clients if one.method == label])
        if mine:
            up, down = sum(gain > 0 for gain in mine), sum(gain < 0 for gain in mine)
            said.append(
                f"{label}: {up} of {len(mine)} clients gain over training alone, {down} lose; "
                f"{points(mine)} points in the mean over all"
            )
    return said + [
        f"{label} has all samples in one place, which breaks the federation's rule: it is there to "
        "compare with"
        for label, runs in results.items()
        if any(run.settings.method_class.pooled for run in runs)
    ]
