"""MAP's parameters: alpha of the restricted softmax by the knowledge transfer and its weight, as a
scatter with FedAvg."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from matplotlib.figure import Figure

from fedmap.paper.federated import (
    COLUMNS,
    FederatedRun,
    RunStudy,
    Who,
    average,
    comparable,
    cut,
    difference,
    map_beside_fedavg,
    trusted,
    words,
)
from fedmap.paper.finding import Estimate, Finding, Verdict, by_seeds, not_tested
from fedmap.paper.study import (
    GOALS,
    STUDIES,
    Choice,
    Claim,
    Report,
    Row,
    Scale,
    names_of,
)
from fedmap.report.plots import COLORS, bare
from fedmap.report.table import Table

ALPHAS = (0.1, 0.25, 0.5, 0.75, 0.9)
# of each transfer with its weight, the mark in the figure
MARKERS = {("kd", 0.01): "o", ("kd", 0.1): "s", ("mmd", 0.01): "^", ("mmd", 0.1): "D"}
PREFERRED = "alpha 0.9, kd 0.01"
FEDAVG = "default"  # the group of FedAvg's run
Points = dict[str, tuple[float, float]]  # of each group, global and personal accuracy


def group(alpha: float, transfer: str, weight: float) -> str:
    """The name of one setting."""
    return f"alpha {alpha:g}, {transfer} {weight:g}"


SETTINGS = {
    group(alpha, transfer, weight): {"alpha": alpha, "transfer": transfer, "weight": weight}
    for alpha in ALPHAS
    for transfer, weight in MARKERS
}


class Parameters(RunStudy):
    """MAP with every setting that the paper tries."""

    line = "MAP with 20 settings of its parameters, beside FedAvg"
    paper = "The figure of the parameter studies"
    columns: ClassVar[Sequence[str]] = [column.name for column in COLUMNS[:6]]

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[: {"small": 3, "smoke": 1}.get(scale)]

    def cuts(self, scale: Scale) -> list[str]:
        more = {"paper": [], "small": ["at most 3 of 6 columns"], "smoke": ["one column"]}[scale]
        return [*words(cut(scale)), *more]

    def work(self, choice: Choice) -> list[FederatedRun]:
        return map_beside_fedavg(choice, SETTINGS)

    def report(self, rows: list[Row]) -> Report:
        rows, left_out = comparable(rows)
        columns, found = ", ".join(names_of(rows, "column")), points(rows)
        return Report(
            {"parameters": table(rows, columns)},
            {"scatter": scatter(found, columns)},
            findings(rows),
            left_out,
        )

    def claims(self) -> list[Claim]:
        return [
            Claim("All settings of MAP are above FedAvg", all_above),
            Claim("alpha 0.9 with distillation and weight 0.01 is preferred", preferred),
        ]


STUDIES.add("parameters")(Parameters())


def run_of(group: str) -> Who:
    """Whose group it is."""
    return "fedavg" if group == FEDAVG else "map", group


def points(rows: list[Row]) -> Points:
    """Both accuracies of each group: mean of the last ten rounds, and of all clients."""
    steady = ("global_last_10", "personal_all_clients")
    return {
        name: (average(rows, run_of(name), steady[0]), average(rows, run_of(name), steady[1]))
        for name in names_of(rows, "group")
    }


def table(rows: list[Row], columns: str) -> Table:
    """Steadiest number, difference from FedAvg and last round, of FedAvg and of MAP with each
    setting."""
    numbers = {"global": "global_last_10", "personal": "personal_all_clients"}
    head = ["run"]
    for steady in ("global, last 10", "personal, all clients"):
        head += [steady, "from FedAvg", "last round"]
    lines = []
    for name in names_of(rows, "group"):
        line = ["FedAvg" if name == FEDAVG else f"MAP, {name}"]
        for goal, steady in numbers.items():
            gain = from_fedavg(rows, name, goal)
            line += [
                f"{average(rows, run_of(name), steady):.1f}",
                "-" if gain is None else str(gain),
                f"{average(rows, run_of(name), goal):.1f}",
            ]
        lines.append(line)
    caption = f"Accuracy in %, average over {columns}; differences ± standard error"
    return Table(caption, head, lines)


def from_fedavg(rows: list[Row], name: str, goal: str) -> Estimate | None:
    """How far one setting of MAP is above FedAvg."""
    return difference(rows, ("map", name), run_of(FEDAVG), goal)


def scatter(points: Points, columns: str) -> Figure:
    """Color is alpha, the mark is the transfer; the lines are FedAvg's accuracies."""
    figure = Figure(figsize=(7, 4.6), layout="constrained")
    axes = figure.subplots()
    for color, alpha in zip(COLORS[1:], ALPHAS, strict=False):
        for (transfer, weight), marker in MARKERS.items():
            if (name := group(alpha, transfer, weight)) in points:
                # hollow, so that points in one place are all seen
                axes.scatter(*points[name], facecolor="none", edgecolor=color, marker=marker, s=42)
    for color, alpha in zip(COLORS[1:], ALPHAS, strict=False):
        axes.scatter([], [], color=color, label=f"alpha {alpha:g}")
    for (transfer, weight), marker in MARKERS.items():
        label = f"{transfer.upper()}, weight {weight:g}"
        axes.scatter([], [], color="#777777", marker=marker, label=label)
    if FEDAVG in points:
        across, up = points[FEDAVG]
        axes.axvline(across, color="#BBBBBB", linewidth=1)
        axes.axhline(up, color="#BBBBBB", linewidth=1)
        axes.scatter(across, up, color="black", marker="*", s=120, label="FedAvg")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set_xlabel("global accuracy, %")
    axes.set_ylabel("personal accuracy, %")
    title = f"MAP's parameters, last ten rounds and all clients\n{columns}"
    axes.set_title(title, loc="left", fontsize=10)
    bare(axes)
    return figure


def above_fedavg(rows: list[Row]) -> dict[str, tuple[bool, bool]]:
    """Of each setting of MAP that can be compared, whether it is above FedAvg in global and in
    personal accuracy, by the error of the difference."""
    found = {}
    for name in names_of(rows, "group"):
        gains = [from_fedavg(rows, name, goal) for goal in GOALS]
        if gains[0] and gains[1]:
            found[name] = gains[0].above, gains[1].above
    return found


def from_mean(rows: list[Row], name: str) -> tuple[float, ...]:
    """How far the means of one setting are above FedAvg's, in both accuracies."""
    gains = (from_fedavg(rows, name, goal) for goal in GOALS)
    return tuple(gain.mean if gain else 0.0 for gain in gains)


def above_preferred(rows: list[Row], goal: str) -> int:
    """How many other settings are above the preferred one, by the error of the difference."""
    ours = run_of(PREFERRED)
    others = [run_of(name) for name in names_of(rows, "group") if name not in (FEDAVG, PREFERRED)]
    gains = [difference(rows, other, ours, goal) for other in others]
    return sum(gain is not None and gain.above for gain in gains)


def findings(rows: list[Row]) -> list[Finding]:
    """The paper's two statements of this figure, where their settings are there."""
    found = [finding for finding in (superior(rows), first(rows)) if finding]
    enough = len(trusted(rows)) == len(rows)
    return found if enough else by_seeds(found, len(names_of(rows, "seed")))


def superior(rows: list[Row]) -> Finding | None:
    """Every setting in both accuracies; in part: more than half of them. One that diverged is not
    above."""
    above = above_fedavg(rows)
    if not above:
        return None
    every = len(SETTINGS)
    in_global, in_personal = (sum(pair[i] for pair in above.values()) for i in (0, 1))
    both = sum(all(pair) for pair in above.values())
    short = f"{both} of {every} settings are above FedAvg in both"
    numbers = (
        f"Of {every} settings, {in_global} are above FedAvg in global, {in_personal} in personal "
        f"accuracy and {both} in both"
    )
    means = [from_mean(rows, name) for name in above]
    numbers += (
        f"; by their means alone {sum(g > 0 for g, _ in means)} in global, "
        f"{sum(p > 0 for _, p in means)} in personal accuracy and "
        f"{sum(min(pair) > 0 for pair in means)} in both"
    )
    if len(above) < every:
        numbers += f"; {every - len(above)} diverged or were not run"
    verdict = Verdict.of(both == every, both > every / 2)
    return Finding("The paper's 'all superior to' FedAvg", verdict, numbers, short)


def first(rows: list[Row]) -> Finding | None:
    """No other setting above it in either accuracy; in part: in one of the two."""
    at = points(rows)
    maps = {name: point for name, point in at.items() if name != FEDAVG}
    if PREFERRED not in maps:
        return None
    better = [above_preferred(rows, goal) for goal in GOALS]
    highest = [highest_mean(maps, i) for i in (0, 1)]
    others = len(maps) - 1
    numbers = (
        f"Of {others} others, {better[0]} are above {PREFERRED} in global and {better[1]} in "
        f"personal accuracy; the highest means are those of {highest[0]} and {highest[1]}"
    )
    if FEDAVG in at:
        numbers += f"; {PREFERRED} is {gains_of_preferred(rows)} from FedAvg"
    short = f"{better[0]} of {others} others are above it in global, {better[1]} in personal"
    verdict = Verdict.of(not any(better), not all(better))
    statement = "The paper's 'preferred', taken as no other setting above it"
    return Finding(statement, verdict, numbers, short)


def highest_mean(maps: Points, goal: int) -> str:
    """The setting with the highest mean, how many share it, and the mean."""
    best = max(point[goal] for point in maps.values())
    name, *more = [name for name, point in maps.items() if point[goal] == best]
    shared = f" and {len(more)} more" if more else ""
    return f"{name}{shared} ({best:.1f})"


def gains_of_preferred(rows: list[Row]) -> str:
    """In both goals, in words."""
    gains = (from_fedavg(rows, PREFERRED, goal) for goal in GOALS)
    return " and ".join(f"{gain} {goal}" for gain, goal in zip(gains, GOALS, strict=True))


def all_above(claim: str, rows: list[Row]) -> Finding:
    """Each of the 20 settings is above FedAvg in both accuracies; in part: more than half of
    them are."""
    return decided(claim, rows, superior)


def preferred(claim: str, rows: list[Row]) -> Finding:
    """No other setting is above it in either accuracy; in part: none in one of the two."""
    return decided(claim, rows, first)


def decided(claim: str, rows: list[Row], judge: Callable[[list[Row]], Finding | None]) -> Finding:
    """One of the statements as a claim, by the rows that may decide."""
    rows, _ = comparable(trusted(rows))
    finding = judge(rows) if PREFERRED in above_fedavg(rows) else None
    if finding is None:
        return not_tested(claim, f"FedAvg or {PREFERRED} has not enough seeds")
    columns, every = len(names_of(rows, "column")), len(Parameters.columns)
    short = f"{finding.short}, {columns} of {every} columns"
    return finding._replace(statement=claim, short=short, so_far=columns < every)
