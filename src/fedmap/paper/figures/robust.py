"""What attackers do to FedAvg and MAP, by the average that the server takes. This is not in the
paper."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar, NamedTuple, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmap.methods.parts.average import Kind
from fedmap.paper.federated import FederatedRun, cut, percent, words
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
PLACE = {"data": "fashion-mnist", "net": "lenet"}
# All clients in every round, so that no round has more attackers than the share says.
SMALL = {
    "data": "fashion-mini", "samples": 1000, "clients": 10, "fraction": 1.0, "rounds": 15,
    "epochs": 1, "batch": 32, "lr": 0.05,
}  # fmt: skip
SMOKE = SMALL | {"samples": 200, "clients": 6, "rounds": 2}


class Cell(NamedTuple):
    """A run, and where it stands: the run without attackers stands with every attack."""

    attack: str
    share: float
    run: FederatedRun


class Robust(Study):
    """Each rule with each attack by none, a tenth and three tenths of the clients."""

    line = "What attackers do, by the average that the server takes"
    paper = "An addition to the figures"
    columns: ClassVar[Sequence[str]] = tuple(ATTACKS)
    methods: ClassVar[Sequence[str]] = ("fedavg", "map")

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[1:2] if scale == "smoke" else self.columns

    def cuts(self, scale: Scale) -> list[str]:
        return words(cut(scale, SMALL, SMOKE))

    def cells(self, choice: Choice) -> list[Cell]:
        """All runs with their places."""
        smoke = choice.scale == "smoke"
        given: dict[str, Any] = PLACE | cut(choice.scale, SMALL, SMOKE)
        found = []
        for attack in choice.columns:
            for method in choice.methods:
                for rule in RULES[:2] if smoke else RULES:
                    for share in SHARES[::2] if smoke else SHARES:
                        harm = {"attack": attack, "attackers": share} if share else {}
                        more = given | harm | {"method": method, "aggregate": rule}
                        group = f"{rule}, {100 * share:.0f} %"
                        found += [
                            Cell(attack, share, FederatedRun(choice, attack, group, seed=s, **more))
                            for s in choice.seeds
                        ]
        return found

    def work(self, choice: Choice) -> list[FederatedRun]:
        return [cell.run for cell in self.cells(choice)]

    def collect(self, choice: Choice, root: Path) -> list[Row]:
        return [row(cell, root) for cell in self.cells(choice) if cell.run.done(root)]

    def report(self, rows: list[Row]) -> Report:
        seeds = ", ".join(str(seed) for seed in names_of(rows, "seed"))
        caption = (
            "Global accuracy, mean of the last ten rounds / personal accuracy of honest clients, "
            f"in %, mean over seeds {seeds}"
        )
        return Report(
            {"attacks": table(caption, rows)}, {"attacks": figure(rows)}, notes=notes(rows)
        )


STUDIES.add("robust")(Robust())


def row(cell: Cell, root: Path) -> Row:
    """The mean of the last ten rounds of the global model, and the honest clients' own accuracy."""
    settings = cell.run.resolved
    found: tuple[float | None, float | None] = (None, None)
    if not cell.run.diverged(root):
        final = cell.run.result(root).final
        accuracies = final["personal_accuracy_per_client"]
        bad = attackers(settings.seed, cell.share, len(accuracies))
        honest = [accuracy for k, accuracy in enumerate(accuracies) if k not in bad]
        found = percent(final["global_accuracy_last_10"]), percent(mean(honest))
    return {
        "column": cell.attack,
        "method": settings.method,
        "rule": settings.aggregate,
        "share": cell.share,
        "seed": settings.seed,
        "rounds": settings.rounds,
        "outcome": "done" if found[0] is not None else "diverged",
        "global": found[0],
        "personal": found[1],
    }


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
    """For each method and attack, what the most attackers do to the mean and to the best rule."""
    sentences, most = [], max(names_of(rows, "share"))
    for method in names_of(rows, "method"):
        for attack in names_of(rows, "column"):
            where = {"method": method, "column": attack}
            by_rule = {
                rule: mean(accuracies(rows, "global", rule=rule, share=most, **where))
                for rule in names_of(rows, "rule")
            }
            clean = mean(accuracies(rows, "global", rule="mean", share=0, **where))
            best = max(by_rule, key=lambda rule: by_rule[rule])
            sentences.append(
                f"{method}, {100 * most:.0f} % with {ATTACKS[attack]}: the mean's global model "
                f"falls from {clean:.1f} % to {by_rule['mean']:.1f} %; best is {best} with "
                f"{by_rule[best]:.1f} %."
            )
    lost = sum(r["outcome"] == "diverged" for r in rows)
    return [*sentences, f"{lost} of {len(rows)} runs diverged; they count as 0 %."]


def figure(rows: list[Row]) -> Figure:
    """Global accuracy by the share of attackers: methods down, attacks across."""
    methods, attacks = names_of(rows, "method"), names_of(rows, "column")
    size = 3.6 * len(attacks) + 1.4, 2.9 * len(methods)
    drawn = Figure(figsize=size, layout="constrained")
    places = drawn.subplots(len(methods), len(attacks), squeeze=False, sharey=True, sharex=True)
    for method, line in zip(methods, places, strict=True):
        for attack, axes in zip(attacks, line, strict=True):
            chosen = [r for r in rows if (r["method"], r["column"]) == (method, attack)]
            curves(axes, chosen)
            axes.set_title(f"{method}: {ATTACKS[attack]}", loc="left", fontsize=9)
        line[0].set_ylabel("global accuracy, %")
    for axes in places[-1]:
        axes.set_xlabel("attackers, % of the clients")
    lines, names = places[0][0].get_legend_handles_labels()
    drawn.legend(lines, names, loc="outside right center", frameon=False, fontsize=9)
    return drawn


def curves(axes: Axes, rows: list[Row]) -> None:
    """One line for each rule, with the spread over the seeds, a little beside each other."""
    shares, rules = names_of(rows, "share"), names_of(rows, "rule")
    for number, rule in enumerate(rules):
        values = [accuracies(rows, "global", rule=rule, share=share) for share in shares]
        axes.errorbar(
            [100 * share + 0.4 * (number - len(rules) / 2) for share in shares],
            [mean(found) for found in values],
            [stdev(found) if len(found) > 1 else 0.0 for found in values],
            label=rule,
            color=COLORS[number],
            marker="o",
            markersize=4,
            linewidth=1.4 if rule != "mean" else 2.2,
            elinewidth=0.8,
        )
    axes.set_xticks([100 * share for share in shares])
    axes.set_ylim(bottom=0)
    bare(axes)
