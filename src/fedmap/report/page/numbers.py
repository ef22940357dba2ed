"""The numbers of the page: of each chart in rows, of each table in cells."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any

import numpy as np

from fedmap.errors import FedmapError
from fedmap.methods import METHODS
from fedmap.registry import nearest
from fedmap.report.clients import ALONE, GLOBAL, Served, gains, losers, over_seeds, points
from fedmap.report.page.models import Proxies, mean_where, of_classes
from fedmap.report.plots import SMOOTH, smooth
from fedmap.report.table import Row, Table, percent, rows, seconds
from fedmap.simulate.result import Result

Results = Mapping[str, list[Result]]
Rows = list[dict[str, Any]]
MOST_POINTS = 120  # rounds of a curve
MOST_TICKS = 4000  # clients and methods in the chart of gains by method
MOST_CLIENTS = 40  # in the chart by client
MOST_CELLS = 16_000  # of all confusion matrices together
KINDS = ("global", "personal")
PERSONAL = "personal_accuracy_all_clients"


def chosen_baseline(results: Results, wanted: str | None) -> str:
    """What clients are compared with: what is wanted, else training alone, FedAvg, or each run's
    own global model."""
    known = [*results, GLOBAL]
    if wanted is not None and wanted not in known:
        raise FedmapError(f"there is no baseline {wanted!r}; {nearest(wanted, known)}")
    several = [ALONE, "fedavg"] if len(results) > 1 else []
    return wanted or next((name for name in several if name in results), GLOBAL)


def pooled(run: Result) -> bool:
    """Does its method break the federation's rule? Of code that is not known here, no."""
    method = run.settings.method
    return method in METHODS and METHODS[method].pooled


# Curves and the scatter.


def curve_rows(results: Results) -> Rows:
    """Both accuracies by round, in per cent: the mean over seeds of the last five rounds, one
    deviation to both sides, and the single round."""
    found: Rows = []
    for label, runs in results.items():
        both = {kind: by_seed(runs, f"{kind}_accuracy") for kind in KINDS}
        for round in thinned(max((len(run.rounds) for run in runs), default=0)):
            line: dict[str, Any] = {"method": label, "round": round}
            for kind, seeds in both.items():
                line |= at_round(seeds, round, kind)
            found.append(line)
    return found


def by_seed(runs: Sequence[Result], name: str) -> list[list[float]]:
    """An accuracy in per cent by run and round; only of runs that have it in every round."""
    seeds = [[record[name] for record in run.rounds] for run in runs]
    return [[100 * value for value in one] for one in seeds if one and None not in one]


def thinned(rounds: int) -> list[int]:
    """At most so many rounds as are drawn, evenly, with the first and the last."""
    places = np.linspace(1, rounds, min(rounds, MOST_POINTS)).round()
    return [int(place) for place in places]


def at_round(seeds: Sequence[Sequence[float]], round: int, kind: str) -> dict[str, Any]:
    """The curve at a round, over the runs that have come so far."""
    here = [one for one in seeds if len(one) >= round]
    if not here:
        return {}
    steady = [float(smooth(np.array(one[:round]), SMOOTH)[-1]) for one in here]
    middle, spread = mean(steady), stdev(steady) if len(steady) > 1 else 0.0
    single = mean(one[round - 1] for one in here)
    return {
        kind: middle,
        f"{kind}_low": middle - spread,
        f"{kind}_high": middle + spread,
        f"{kind}_single": single,
        "seeds": len(here),
    }


def scatter_rows(results: Results) -> Rows:
    """Both accuracies of each finished run, and of each method in the mean (seed: all)."""
    found: Rows = []
    for label, runs in results.items():
        both = [(run, run.final.get("global_accuracy"), run.final.get(PERSONAL)) for run in runs]
        known = [(run, 100 * g, 100 * p) for run, g, p in both if g is not None and p is not None]
        for run, g, p in known:
            seed = str(run.settings.seed)
            found.append({"method": label, "seed": seed, "global": g, "personal": p})
        if known:
            middle = {
                "global": mean(g for _, g, _ in known),
                "personal": mean(p for *_, p in known),
            }
            found.append({"method": label, "seed": "all"} | middle)
    return found


# Clients.


def same_clients(results: Results) -> bool:
    """Does every seed have the same clients: those that the data names, or of one partition?"""
    every = [run for runs in results.values() for run in runs]
    one_partition = len({run.settings.partition_seed for run in every}) <= 1
    return one_partition or all(run.named for run in every)


def each_client(clients: Sequence[Served], same: bool) -> list[Served]:
    """Each client once: its mean over seeds, or where seeds have other clients, with its seed."""
    if same:
        return over_seeds(clients)
    return [one._replace(client=f"{one.client}, seed {one.seed}") for one in clients]


def gain_rows(clients: Sequence[Served]) -> Rows:
    """What each client gains with each method, in points."""
    return [
        {
            "method": one.method,
            "client": one.client,
            "gain": 100 * one.gain,
            "personal": 100 * one.personal,
            "baseline": 100 * one.local,
        }
        for one in clients
        if one.gain is not None and one.personal is not None and one.local is not None
    ]


def mean_gains(rows: Rows, of: str) -> dict[str, float]:
    """The mean gain of each method, or of each client; the least first."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row[of], []).append(row["gain"])
    return dict(sorted(((name, mean(g)) for name, g in found.items()), key=lambda pair: pair[1]))


def thinned_ticks(rows: Rows) -> Rows:
    """At most so many rows as are drawn: of each method evenly, from the least gain to the most."""
    step = -(-len(rows) // MOST_TICKS)
    return sorted(rows, key=lambda row: (row["method"], row["gain"]))[:: max(step, 1)]


def extremes(rows: Rows) -> Rows:
    """The clients that are drawn by name, the least gain first: all, or those with the least and
    with the most."""
    names = list(mean_gains(rows, "client"))
    if len(names) > MOST_CLIENTS:
        names = names[: MOST_CLIENTS // 2] + names[-MOST_CLIENTS // 2 :]
    order = {name: place for place, name in enumerate(names)}
    kept = [row for row in rows if row["client"] in order]
    return sorted(kept, key=lambda row: order[row["client"]])


# Classes.


def class_rows(results: Results) -> Rows:
    """Each class with each method: accuracy in per cent, in the mean over seeds."""
    return [
        {"method": label, "class": name, "kind": kind, "accuracy": 100 * share}
        for label, runs in results.items()
        for kind in KINDS
        for name, share in per_class(runs, kind).items()
    ]


def per_class(runs: Sequence[Result], kind: str) -> dict[str, float]:
    """A method's accuracy for each class, where it is known: the mean over seeds."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for name, share in (run.final.get(f"{kind}_accuracy_per_class") or {}).items():
            if share is not None:
                found.setdefault(name, []).append(share)
    return {name: mean(shares) for name, shares in found.items()}


def confusion_rows(results: Results, classes: Sequence[str]) -> Rows:
    """For each method and kind, how many samples of a class got which answer, over all seeds: the
    cells with the most, where there are too many for a page."""
    matrices = {
        (label, kind): added
        for label, runs in results.items()
        for kind in KINDS
        if (added := added_up(runs, f"{kind}_confusion")) is not None
    }
    most = max(MOST_CELLS // max(len(matrices), 1), 1)
    return [
        {"method": label, "kind": kind} | cell
        for (label, kind), matrix in matrices.items()
        for cell in cells(matrix, classes, most)
    ]


def added_up(runs: Sequence[Result], name: str) -> np.ndarray[Any, Any] | None:
    """The sum of the runs' matrices; None where none has one."""
    known = [np.array(run.final[name]) for run in runs if run.final.get(name) is not None]
    return sum(known[1:], known[0]) if known else None


def cells(matrix: np.ndarray[Any, Any], classes: Sequence[str], most: int) -> Rows:
    """The cells that are not empty, as shares of their class's samples."""
    totals = np.maximum(matrix.sum(1), 1)
    every = [
        {"class": classes[i], "answer": classes[j], "count": int(matrix[i, j])}
        | {"share": round(100 * float(matrix[i, j] / totals[i]), 1)}
        for i, j in zip(*np.nonzero(matrix), strict=True)
    ]
    return sorted(every, key=lambda cell: -cell["count"])[:most]


# Proxies.


def norm_rows(found: Mapping[str, Proxies], classes: Sequence[str]) -> Rows:
    """For each method and class what `of_classes` says."""
    return [
        {"method": label, "class": name} | line
        for label, one in found.items()
        for name, line in zip(classes, of_classes(one), strict=True)
    ]


def drift_rows(found: Mapping[str, Proxies]) -> Rows:
    """For each method how far proxies are from the global model's: observed, and missing."""
    return [
        {"method": label, "proxies": kind, "drift": drift}
        for label, one in found.items()
        for kind, where in (("observed", one.observed), ("missing", ~one.observed))
        if one.drift is not None and (drift := mean_where(one.drift, where)) is not None
    ]


# Tables.


def method_rows(results: Results, clients: Sequence[Served]) -> list[Row]:
    """One row for each method, with what its clients gain."""
    found = []
    for row in rows(dict(results)):
        mine = gains([one for one in clients if one.method == row.method])
        if mine:
            row = row._replace(gain=points(mine), losers=losers(mine))
        found.append(row)
    return found


def fairness_table(clients: Sequence[Served], baseline: str) -> Table:
    """How evenly a method serves its clients: who is served worst, and who loses the most."""
    lines = []
    for label in dict.fromkeys(one.method for one in clients):
        mine = [one for one in clients if one.method == label and one.personal is not None]
        own = sorted(one.personal for one in mine if one.personal is not None)
        if own:
            tenth = own[: max(len(own) // 10, 1)]
            spread = f"{100 * stdev(own):.1f}" if len(own) > 1 else "-"
            worst = min(mine, key=lambda one: (one.gain is None, one.gain or 0))
            loss = worst.gain is not None and worst.gain < 0
            lost = f"{worst.client} ({points(gains([worst]))})" if loss else "-"
            cells = [percent([mean(own)]), spread, percent([own[0]]), percent([mean(tenth)])]
            lines.append([label, *cells, lost])
    head = ["method", "personal", "deviation over clients", "worst client", "worst tenth"]
    caption = "How evenly clients are served: personal accuracy in %"
    return Table(caption, [*head, f"loses the most against {baseline}"], lines)


def cost_rows(results: Results) -> Rows:
    """Megabytes that a round moves, and its seconds, in the mean over all rounds of all runs."""
    found: Rows = []
    for label, runs in results.items():
        records = [record for run in runs for record in run.rounds]
        if records:
            down, up = (mean(r[f"bytes_{way}"] for r in records) / 1e6 for way in ("down", "up"))
            time = mean(r["seconds"] for r in records)
            found.append({"method": label, "down": down, "up": up, "seconds": time})
    return found


def cost_table(results: Results) -> Table:
    """What each method costs: a round, and a whole run."""
    lines = []
    for line, runs in zip(cost_rows(results), filter(None, results.values()), strict=True):
        whole = mean(sum(record["seconds"] for record in run.rounds) for run in runs)
        moved = mean(sum(r["bytes_down"] + r["bytes_up"] for r in run.rounds) for run in runs)
        each = [line["method"], f"{line['down']:.2f}", f"{line['up']:.2f}", seconds(runs)]
        lines.append([*each, f"{moved / 1e6:.1f}", f"{whole:.1f}"])
    head = ["method", "MB down a round", "MB up a round", "s/round", "MB a run", "s a run"]
    return Table("Bytes and time; seconds are of the machine that ran it", head, lines)


def class_table(results: Results, classes: Sequence[str]) -> Table:
    """Accuracy of each class with each method: global and personal."""
    columns = {
        f"{label}, {kind}": shares
        for label, runs in results.items()
        for kind in KINDS
        if (shares := per_class(runs, kind))
    }
    lines = [[name, *(percent([of.get(name)]) for of in columns.values())] for name in classes]
    caption = "Accuracy in % of each class; personal: of all clients' models together"
    return Table(caption, ["class", *columns], lines if columns else [])


def proxy_table(found: Mapping[str, Proxies]) -> Table:
    """The mean length and drift of proxies, of classes that clients have and that they miss."""
    lines = []
    for label, one in found.items():
        numbers = [mean_where(one.norms, where) for where in (one.observed, ~one.observed)]
        away = one.drift
        numbers += [
            None if away is None else mean_where(away, where)
            for where in (one.observed, ~one.observed)
        ]
        lines.append([label, *("-" if n is None else f"{n:.3f}" for n in numbers)])
    head = ["method", "norm, observed", "norm, missing", "drift, observed", "drift, missing"]
    caption = (
        "Proxies in the clients' own models; drift: distance to the global model's, in its norm"
    )
    return Table(caption, head, lines)
