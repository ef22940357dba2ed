"""The first screen in words: which method is best, did the federation help, and who loses."""

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import NamedTuple

from fedmap.report.clients import ALONE, GLOBAL, SPOKEN, Served, finished, gains, losers, points
from fedmap.report.page.numbers import PERSONAL, Results, pooled
from fedmap.report.table import percent
from fedmap.simulate.result import Result

MOST_NAMES = 3  # clients that are named as losing the most


class Card(NamedTuple):
    """A question with its answer, and what stands behind it."""

    question: str
    answer: str
    detail: str


def cards(results: Results, clients: Sequence[Served], baseline: str) -> list[Card]:
    """The questions of a reader who has just come. Methods that pool all samples are left out: they
    break the federation's rule. Where runs are finished, only these are compared."""
    fair = keeping_the_rule(results)
    done = {label: list(filter(finished, runs)) for label, runs in fair.items()}
    fair = {label: runs for label, runs in done.items() if runs} or fair
    own = personal_of(fair)
    return [
        best("global model", values_of(fair, "global_accuracy")),
        best("personal models", {k: v for k, v in own.items() if k != ALONE or len(own) == 1}),
        helped(clients, own, baseline),
        who_loses(clients, own, baseline),
    ]


def keeping_the_rule(results: Results) -> Results:
    """The methods that do not pool samples."""
    return {label: runs for label, runs in results.items() if runs and not any(map(pooled, runs))}


def personal_of(results: Results) -> dict[str, list[float]]:
    """Each method's personal accuracy: over all clients, or of the last round where none is
    finished."""
    return values_of(results, PERSONAL) or values_of(results, "personal_accuracy")


def best_of(results: Results) -> str:
    """The federated method with the best personal models; any where none is known."""
    fair = {label: runs for label, runs in keeping_the_rule(results).items() if label != ALONE}
    own = personal_of(fair) or personal_of(results)
    return max(own, key=lambda label: mean(own[label]), default=next(iter(results), ""))


def values_of(results: Results, name: str) -> dict[str, list[float]]:
    """A final number of each method's runs, where it is known."""

    def known(runs: Sequence[Result]) -> list[float]:
        return [run.final[name] for run in runs if run.final.get(name) is not None]

    return {label: found for label, runs in results.items() if (found := known(runs))}


def best(what: str, values: Mapping[str, Sequence[float]]) -> Card:
    """Which method has the best of some models, and from which it cannot be told."""
    question = f"Best {what}"
    if not values:
        return Card(question, "not known", f"no run has {what} with a test result yet")
    first = max(values, key=lambda label: mean(values[label]))
    answer = f"{percent(list(values[first]))} %"
    if len(values) == 1:
        return Card(question.replace("Best ", "").capitalize(), answer, first)
    return Card(question, first, f"{answer}; {apart(first, values)}")


def apart(first: str, values: Mapping[str, Sequence[float]]) -> str:
    """Is the best one's lead larger than the spread over seeds?"""
    if min(len(found) for found in values.values()) < 2:
        return "one seed only, so a point or two may be chance"
    near = [
        label
        for label, found in values.items()
        if label != first
        and mean(values[first]) - mean(found) <= max(stdev(found), stdev(values[first]))
    ]
    return f"within the spread of {', '.join(near)}" if near else "more than the spread over seeds"


def leader(clients: Sequence[Served], own: Mapping[str, Sequence[float]]) -> str:
    """The method with the best personal models of those whose gains are known."""
    known = {one.method for one in clients if one.gain is not None} & set(own)
    return max(known, key=lambda label: mean(own[label]), default="")


def helped(clients: Sequence[Served], own: Mapping[str, Sequence[float]], baseline: str) -> Card:
    """What the best method's clients gain over the baseline, in the mean."""
    question = {
        ALONE: "Did the federation help?",
        GLOBAL: "Do personal models help?",
    }.get(baseline, f"Better than {baseline}?")
    first = leader(clients, own)
    mine = gains([one for one in clients if one.method == first])
    if not mine:
        return Card(question, "not known", f"there is nothing finished to compare with {baseline}")
    up, over = sum(gain > 0 for gain in mine), SPOKEN.get(baseline, baseline)
    detail = f"{up} of {len(mine)} clients gain over {over} with {first}"
    if baseline == GLOBAL:
        detail += "; whether the federation helped, a run of the method local would say"
    return Card(question, f"{points(mine)} points", detail)


def who_loses(clients: Sequence[Served], own: Mapping[str, Sequence[float]], baseline: str) -> Card:
    """The clients that are worse off with the best method, by name."""
    first = leader(clients, own)
    mine = [one for one in clients if one.method == first and one.gain is not None]
    if not mine:
        return Card("Who loses?", "not known", "gains of clients are known once runs are finished")
    worst = sorted((one for one in mine if gains([one])[0] < 0), key=lambda one: gains([one])[0])
    if not worst:
        return Card("Who loses?", "nobody", f"with {first}, no client is worse off")
    names = ", ".join(f"{one.client} ({points(gains([one]))})" for one in worst[:MOST_NAMES])
    return Card("Who loses?", losers(gains(mine)), f"with {first}: {names}" + more(len(worst)))


def more(count: int) -> str:
    """How many are not named."""
    return f" and {count - MOST_NAMES} more" if count > MOST_NAMES else ""
