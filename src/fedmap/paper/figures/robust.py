"""What attackers do to FedAvg and MAP, by the average that the server takes. This is not in the
paper."""

from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmap.methods.parts.average import Kind
from fedmap.paper.federated import FederatedRun, cut, percent, shown_name, words
from fedmap.paper.study import STUDIES, Choice, Report, Row, Scale, Study, names_of
from fedmap.report.plots import COLORS, bare
from fedmap.report.table import Table
from fedmap.simulate.attacks import attackers

RULES: tuple[Kind, ...] = get_args(Kind)
ATTACKS = {
    "labels": "labels flipped",
    "signs": "the change's sign flipped",
    "noise": "noise as long as the change",
}
SHARES = (0.0, 0.1, 0.3)
# Gradients are shortened to 100, as in the authors' code: without, LeNet may diverge unattacked.
CLIP = 100.0
PLACE = {"data": "fashion-mnist", "net": "lenet", "clip": CLIP}
# All clients in every round, so that no round has more attackers than the share says.
SMALL = {
    "data": "fashion-mini", "samples": 2000, "clients": 10, "fraction": 1.0, "rounds": 20,
    "epochs": 2, "batch": 16, "lr": 0.05,
}  # fmt: skip
SMOKE = SMALL | {"samples": 200, "clients": 6, "rounds": 2}


class Robust(Study):
    """Each rule with each attack by none, a tenth and three tenths of the clients."""

    line = "What attackers do, by the average that the server takes"
    paper = "An addition to the figures"
    clip = CLIP
    columns: ClassVar[Sequence[str]] = tuple(ATTACKS)
    methods: ClassVar[Sequence[str]] = ("fedavg", "map")

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[1:2] if scale == "smoke" else self.columns

    def cuts(self, scale: Scale) -> list[str]:
        return words(cut(scale, SMALL, SMOKE))

    def work(self, choice: Choice) -> list[FederatedRun]:
        """The run without attackers stands with every attack."""
        smoke = choice.scale == "smoke"
        rules, shares = (RULES[:2], SHARES[::2]) if smoke else (RULES, SHARES)
        given: dict[str, Any] = PLACE | cut(choice.scale, SMALL, SMOKE)
        found = []
        places = product(choice.seeds, choice.columns, choice.methods, rules, shares)
        for seed, attack, method, rule, share in places:
            harm = {"attack": attack, "attackers": share} if share else {}
            how = {"method": method, "aggregate": rule, "seed": seed}
            group = f"{rule}, {100 * share:.0f} %"
            found.append(FederatedRun(choice, attack, group, **given | harm | how))
        return found

    def where(self, run: FederatedRun) -> Row:
        settings = run.settings
        return {
            "column": run.column,
            "method": settings.method,
            "rule": settings.aggregate,
            "share": settings.attackers,
            "seed": settings.seed,
            "rounds": settings.rounds,
        }

    def numbers(self, run: FederatedRun, root: Path) -> list[Row]:
        """The mean of the last ten rounds of the global model, and the honest clients' own
        accuracy."""
        if run.diverged(root):
            return [{"outcome": "diverged", "global": None, "personal": None}]
        final, settings = run.result(root).final, run.settings
        accuracies = final["personal_accuracy_per_client"]
        bad = attackers(settings.seed, settings.attackers, len(accuracies))
        honest = mean(accuracy for k, accuracy in enumerate(accuracies) if k not in bad)
        steady = percent(final["global_accuracy_last_10"])
        return [{"outcome": "done", "global": steady, "personal": percent(honest)}]

    def report(self, rows: list[Row]) -> Report:
        seeds = ", ".join(str(seed) for seed in names_of(rows, "seed"))
        caption = (
            "Global accuracy, mean of the last ten rounds / personal accuracy of the honest "
            "clients (fewer with more attackers, so compare within a column), "
            f"in %, mean over seeds {seeds}; clip 100"
        )
        return Report(
            {"attacks": table(caption, rows)}, {"attacks": figure(rows)}, notes=notes(rows)
        )


STUDIES.add("robust")(Robust())


def accuracies(rows: list[Row], name: str, **where: Any) -> list[float]:
    """One number of all runs of a place; a run that diverged has lost all."""
    chosen = [r for r in rows if all(r[key] == value for key, value in where.items())]
    return [r[name] or 0.0 for r in chosen]


def shown(rows: list[Row], **where: Any) -> str:
    """Both accuracies of a place."""
    both = [accuracies(rows, name, **where) for name in ("global", "personal")]
    return " / ".join(f"{mean(values):.1f}" for values in both) if both[0] else "-"


def table(caption: str, rows: list[Row]) -> Table:
    """One line for each method and rule, one cell for each attack and share; without attackers
    once."""
    attacks, shares = names_of(rows, "column"), names_of(rows, "share")
    places = [(attacks[0], 0.0), *((a, share) for a in attacks for share in shares if share)]
    titles = [f"{a}, {100 * share:.0f} %" if share else "no attackers" for a, share in places]
    lines = []
    for method in names_of(rows, "method"):
        for rule in names_of(rows, "rule"):
            where = {"method": method, "rule": rule}
            cells = (shown(rows, column=a, share=share, **where) for a, share in places)
            lines.append([method, rule, *cells])
    return Table(caption, ["method", "average", *titles], lines)


def notes(rows: list[Row]) -> list[str]:
    """For each method and attack, what the most attackers do to the mean and to the best rule; how
    many runs diverged, and how many are not done."""
    methods, attacks = names_of(rows, "method"), names_of(rows, "column")
    said = [harm(rows, method, attack) for method in methods for attack in attacks]
    runs = {run_of(r): r["outcome"] for r in rows}
    lost = sum(outcome == "diverged" for outcome in runs.values())
    told = f"{lost} of {len(runs)} runs diverged" + ("; they count as 0 %." if lost else ".")
    places = prod(len(names_of(rows, name)) for name in ("method", "rule", "seed"))
    missing = places * (1 + len(attacks) * (len(names_of(rows, "share")) - 1)) - len(runs)
    more = [f"Runs of these lines that are not done: {missing} (a dash, or fewer seeds)."]
    return [*(sentence for sentence in said if sentence), told, *(more if missing else [])]


def run_of(r: Row) -> tuple[object, ...]:
    """What tells runs apart: without attackers it is the same one for every attack."""
    return r["share"] and r["column"], r["method"], r["rule"], r["share"], r["seed"]


def harm(rows: list[Row], method: str, attack: str) -> str | None:
    """What the most attackers do; None where the runs of the mean are not done."""
    where, most = {"method": method, "column": attack}, max(names_of(rows, "share"))
    by_rule = {
        rule: mean(found)
        for rule in names_of(rows, "rule")
        if (found := accuracies(rows, "global", rule=rule, share=most, **where))
    }
    clean = accuracies(rows, "global", rule="mean", share=0, **where)
    if not (most and clean and "mean" in by_rule):
        return None
    best = max(by_rule, key=lambda rule: by_rule[rule])
    return (
        f"{method}, {100 * most:.0f} % with {ATTACKS[attack]}: the mean's global model goes from "
        f"{mean(clean):.1f} % to {by_rule['mean']:.1f} %; best of "
        f"{len(by_rule)} averages is {best} with {by_rule[best]:.1f} %."
    )


def figure(rows: list[Row]) -> Figure:
    """Global accuracy by the share of attackers: methods down, attacks across."""
    methods, attacks = names_of(rows, "method"), names_of(rows, "column")
    wide, tall = len(attacks), len(methods)
    drawn = Figure(figsize=(3.6 * wide + 1.4, 2.9 * tall), layout="constrained")
    places = drawn.subplots(tall, wide, squeeze=False, sharey=True, sharex=True)
    for axes, (method, attack) in zip(places.flat, product(methods, attacks), strict=True):
        chosen = [r for r in rows if (r["method"], r["column"]) == (method, attack)]
        curves(axes, chosen)
        axes.set_title(f"{shown_name(method)}: {ATTACKS[attack]}", loc="left", fontsize=9)
    for axes in places[:, 0]:
        axes.set_ylabel("global accuracy, %")
    for axes in places[-1]:
        axes.set_xlabel("attackers, % of the clients (lines a little apart)")
    places[0][0].set_xticks([100 * share for share in names_of(rows, "share")])
    places[0][0].set_ylim(bottom=0)  # of all of them, and once all curves are there
    lines, names = places[0][0].get_legend_handles_labels()
    drawn.legend(lines, names, loc="outside right center", frameon=False, fontsize=9)
    return drawn


def curves(axes: Axes, rows: list[Row]) -> None:
    """One line for each rule, with the spread over the seeds, a little beside each other."""
    rules = names_of(rows, "rule")
    for number, rule in enumerate(rules):
        shares = names_of([r for r in rows if r["rule"] == rule], "share")
        values = [accuracies(rows, "global", rule=rule, share=share) for share in shares]
        axes.errorbar(
            [100 * share + 0.4 * (number - (len(rules) - 1) / 2) for share in shares],
            [mean(found) for found in values],
            [stdev(found) if len(found) > 1 else 0.0 for found in values],
            label=rule,
            color=COLORS[number],
            marker="o",
            markersize=4,
            linewidth=1.4 if rule != "mean" else 2.2,
            elinewidth=0.8,
        )
    bare(axes)
