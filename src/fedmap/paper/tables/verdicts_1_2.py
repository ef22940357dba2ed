"""What the paper says of tables 1 and 2: how our rows judge it, and how far the paper's own numbers
bear it out."""

from collections.abc import Collection, Sequence
from functools import partial
from statistics import mean

from fedmap.methods import METHODS
from fedmap.paper.federated import (
    COLUMNS,
    FEDAVG,
    by_seed,
    difference,
    gains_of,
    shown_name,
    trusted,
)
from fedmap.paper.finding import Estimate, Finding, Verdict, not_tested
from fedmap.paper.published import PUBLISHED
from fedmap.paper.study import GOALS, Claim, Row, names_of
from fedmap.paper.tables.best_group import best_group

# the paper's methods in its order: two of them have no global model and are in Table 2 alone
METHODS_OF = {goal: list(dict.fromkeys(m for m, _ in PUBLISHED[goal])) for goal in GOALS}
COMBINED = ("dittors", "scars", "map", "scamap")  # all others are single methods
MAP = ("map", "default")
# ScaMAP is MAP too, FedRS has its global model, and FedAvg has a claim of its own
NO_RIVALS = ("map", "scamap", "fedrs", "fedavg")
RIVALS = [m for m in METHODS_OF["global"] if m not in NO_RIVALS]


def claims() -> list[Claim]:
    """The four claims of both tables."""
    singles = partial(best_single, goal="global", wanted=("fedrs", "scaffold"))
    hpm = partial(best_single, goal="personal", wanted=("fedphp",))
    return [
        Claim(
            "MAP is above FedAvg in aggregation and in personalization",
            above_fedavg,
            above_in_print(),
        ),
        Claim(
            "FedRS and Scaffold are the best single methods for aggregation",
            singles,
            best_in_print("global", ("fedrs", "scaffold")),
        ),
        Claim(
            "FedPHP, the HPM alone, is the best single method for personalization",
            hpm,
            best_in_print("personal", ("fedphp",)),
        ),
        Claim("No other method is above MAP in both", nobody_above_in_both, rivals_in_print()),
    ]


def judged(rows: list[Row], goals: Sequence[str], *methods: str) -> dict[str, list[Row]]:
    """By column, the rows that may decide, with default parameters, where all of these methods can
    be compared with FedAvg in every goal."""
    found: dict[str, list[Row]] = {}
    for r in trusted(rows):
        if r["group"] == "default":
            found.setdefault(r["column"], []).append(r)
    return {
        column: mine
        for column, mine in found.items()
        if all(difference(mine, (m, "default"), FEDAVG, goal) for m in methods for goal in goals)
    }


def above(rows: list[Row], ours: str, other: str, goal: str) -> bool:
    """Is one method above another, by the error of the difference?"""
    gain = difference(rows, (ours, "default"), (other, "default"), goal)
    return gain is not None and gain.above


def over_seeds(rows: list[Row], method: str, column: str, goal: str) -> Estimate:
    """A method's difference from FedAvg with the error over seeds, which is the one for other
    federations: clients of one seed share a global model."""
    gains = by_seed(rows, (method, "default"), FEDAVG, goal, column)
    return Estimate.of([mean(own) for own in gains.values()])


def too_few(claim: str, *methods: str) -> Finding:
    """The finding where no column has enough runs."""
    return not_tested(claim, f"no column has {' and '.join(methods)} with enough seeds")


def some_missing(columns: Collection[str]) -> bool:
    """Are there columns of the paper that were not run?"""
    return len(columns) < len(COLUMNS)


def in_columns(columns: Collection[str]) -> str:
    """How many of the paper's columns a finding rests on."""
    return f"{len(columns)} of {len(COLUMNS)} columns"


def span(columns: dict[str, list[Row]], method: str, goal: str) -> str:
    """How far a method is above FedAvg, from the least to the most of the columns."""
    every = (difference(rows, (method, "default"), FEDAVG, goal) for rows in columns.values())
    gains = sorted((gain for gain in every if gain), key=lambda gain: gain.mean)
    return " to ".join(dict.fromkeys(str(gain) for gain in (gains[0], gains[-1])))


def few(methods: Collection[str]) -> str:
    """The names of at most three methods, else how many they are."""
    return ", ".join(map(shown_name, sorted(methods))) if len(methods) <= 3 else str(len(methods))


def counted(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" + "s" * (number != 1)


def above_fedavg(claim: str, rows: list[Row]) -> Finding:
    """MAP with its default setting is above FedAvg in both accuracies in every column; in part: in
    more than half of these."""
    columns = judged(rows, GOALS, "map")
    if not columns:
        return too_few(claim, "MAP", "FedAvg")
    every = [(column, mine, goal) for column, mine in columns.items() for goal in GOALS]
    won = [above(mine, "map", "fedavg", goal) for _, mine, goal in every]
    alone = [over_seeds(mine, "map", column, goal).above for column, mine, goal in every]
    parts = [
        f"{column} {gains_of(mine, MAP)}{small_gains(mine)}"
        + lost_over_seeds(mine, ["map"], column, "personal")
        for column, mine in columns.items()
    ]
    spans = ", ".join(f"{goal} {span(columns, 'map', goal)}" for goal in GOALS)
    short = (
        f"{spans}, {in_columns(columns)}, {sum(won)} of {len(won)} gains by more than chance, "
        f"{sum(alone)} by seeds alone"
    )
    verdict = Verdict.of(all(won), sum(won) > len(won) / 2)
    return Finding(claim, verdict, "; ".join(parts), short, some_missing(columns))


def small_gains(rows: list[Row]) -> str:
    """In which goals MAP's difference from FedAvg is too small to count, in brackets."""
    return too_small({goal: difference(rows, MAP, FEDAVG, goal) for goal in GOALS})


def by_chance(rows: list[Row], methods: Sequence[str], goal: str) -> str:
    """Whose difference from FedAvg is too small to count, in brackets."""
    return too_small(
        {METHODS[m].__name__: difference(rows, (m, "default"), FEDAVG, goal) for m in methods}
    )


def too_small(gains: dict[str, Estimate | None]) -> str:
    """Those that may be by chance, in brackets."""
    small = [name for name, gain in gains.items() if gain and abs(gain.mean) <= gain.chance]
    return f" ({' and '.join(small)} too small to count)" if small else ""


def best_single(claim: str, rows: list[Row], *, goal: str, wanted: tuple[str, ...]) -> Finding:
    """Each of the named methods is above FedAvg in every column with its default setting, and no
    other single method is above one of them; in part: one of them is above FedAvg in every column,
    and no other single method is above it in one column."""
    columns = judged(rows, [goal], *wanted)
    if not columns:
        return too_few(claim, *(METHODS[m].__name__ for m in wanted), "FedAvg")
    everyone = set(METHODS_OF[goal]) - set(COMBINED)
    parts, first, won, best, so_far = [], [], [], [], some_missing(columns)
    anybody: set[str] = set()
    for column, mine in columns.items():
        singles = [m for m in names_of(mine, "method") if m in everyone]
        others = [m for m in singles if m not in wanted]
        better = {w: [m for m in others if above(mine, m, w, goal)] for w in wanted}
        won.append([above(mine, m, "fedavg", goal) for m in wanted])
        best.append([not better[w] for w in wanted])
        first.append(all(won[-1]) and all(best[-1]))
        anybody |= set.intersection(*map(set, better.values()))
        so_far |= set(singles) != everyone
        rivals = ", ".join(
            f"{' and '.join(map(shown_name, who)) or 'none'} above {shown_name(w)}"
            for w, who in better.items()
        )
        told = f"{column}: {from_fedavg(mine, wanted, goal)}{by_chance(mine, wanted, goal)}"
        among = f"Of {counted(len(others), 'other single method')} with enough seeds"
        more = best_groups(rows, wanted, column, goal)
        more += lost_over_seeds(mine, wanted, column, goal)
        parts.append(f"{told}. {among}: {rivals}{more}")
    in_part = any(
        all(above_it) and any(nobody)
        for above_it, nobody in zip(zip(*won, strict=True), zip(*best, strict=True), strict=True)
    )
    times = zip(wanted, map(sum, zip(*won, strict=True)), strict=True)
    counts = ", ".join(f"{METHODS[m].__name__} in {n} of {len(won)}" for m, n in times)
    spans = ", ".join(f"{METHODS[m].__name__} {span(columns, m, goal)}" for m in wanted)
    short = f"{spans} from FedAvg, {in_columns(columns)}, above it by more than chance: {counts}"
    if goal == "personal":
        alone = [over_seeds(mine, m, c, goal).above for m in wanted for c, mine in columns.items()]
        short += f", by seeds alone in {sum(alone)}"
    if anybody:
        short += f", above {'it' if len(wanted) == 1 else 'both'} in a column: " + few(anybody)
    return Finding(claim, Verdict.of(all(first), in_part), "; ".join(parts), short, so_far)


def best_groups(rows: list[Row], methods: Sequence[str], column: str, goal: str) -> str:
    """What each gains with its best group of parameters, as the paper reports it, where this is
    known."""
    here = [r for r in rows if r["column"] == column]
    known = {m: group for m in methods if (group := best_group(here, m, column, goal))}
    told = [
        f"{shown_name(m)} {difference(here, (m, group), FEDAVG, goal)} ({group})"
        for m, group in known.items()
    ]
    return f"; {column}, with the best group: {', '.join(told)}" if told else ""


def lost_over_seeds(rows: list[Row], methods: Sequence[str], column: str, goal: str) -> str:
    """Whose personal gain counts by the error over clients and would not by that over seeds."""
    means = {m: over_seeds(rows, m, column, goal) for m in methods}
    told = [
        f"{shown_name(m)} {gain}"
        for m, gain in means.items()
        if goal == "personal" and gain.error and above(rows, m, "fedavg", goal) and not gain.above
    ]
    return f"; {column}, by seeds alone too small to count: {', '.join(told)}" if told else ""


def from_fedavg(rows: list[Row], methods: Sequence[str], goal: str) -> str:
    """How far each method is above FedAvg, in words."""
    gains = {m: difference(rows, (m, "default"), FEDAVG, goal) for m in methods}
    return ", ".join(f"{METHODS[m].__name__} {gain}" for m, gain in gains.items()) + " from FedAvg"


def nobody_above_in_both(claim: str, rows: list[Row]) -> Finding:
    """No rival is above MAP by more than chance in both accuracies in any column; in part: in some
    column. ScaMAP is MAP too, FedRS has MAP's global model, and FedAvg has a claim of its own: they
    are no rivals, and columns without a rival do not count."""
    columns = {
        column: (mine, others)
        for column, mine in judged(rows, GOALS, "map").items()
        if (others := rivals_in(mine))
    }
    if not columns:
        return too_few(claim, "MAP", "FedAvg", "a rival")
    parts, nobody, so_far = [], [], some_missing(columns)
    anybody: set[str] = set()
    for column, (mine, others) in columns.items():
        better = [m for m in others if all(above(mine, m, "map", goal) for goal in GOALS)]
        nobody.append(not better)
        anybody |= set(better)
        so_far |= len(others) < len(RIVALS)
        told = ", ".join(map(shown_name, better)) or "none"
        among = f"of {few(others)} with enough seeds" if len(others) <= 3 else f"of {len(others)}"
        parts.append(f"{column}, above MAP in both, {among}: {told}{means_above(rows, column)}")
    everybody = {m for _, others in columns.values() for m in others}
    among = f"of {counted(len(everybody), 'rival')} (there are {len(RIVALS)})"
    short = f"{few(anybody) or 'none'} {among}, {in_columns(columns)}"
    return Finding(claim, Verdict.of(all(nobody), any(nobody)), "; ".join(parts), short, so_far)


def rivals_in(rows: list[Row]) -> list[str]:
    """The methods with a global model that MAP is compared with."""
    return [m for m in names_of(rows, "method") if m in RIVALS]


def means_above(rows: list[Row], column: str) -> str:
    """Whose means alone are above MAP's in both, whatever their seeds."""
    mine = [r for r in rows if r["column"] == column and r["outcome"] == "done"]
    every = rivals_in([r for r in mine if r["group"] == "default"])
    gains = {m: [difference(mine, (m, "default"), MAP, goal) for goal in GOALS] for m in every}
    told = [
        f"{shown_name(m)} ({both[0]} and {both[1]})"
        for m, both in gains.items()
        if all(gain and gain.mean > 0 for gain in both)
    ]
    among = f"{column}, by their means alone, of {counted(len(every), 'rival')} with any seed"
    return f"; {among}: {', '.join(told) or 'none'}"


# -------------------------------------------------------------------------------------------------
# the paper's own numbers


def gain_in_print(method: str, other: str, column: str, goal: str) -> float:
    """How far one method is above another as printed."""
    return PUBLISHED[goal][method, column] - PUBLISHED[goal][other, column]


def above_in_print() -> str:
    """In how many of the printed numbers MAP is above FedAvg."""
    every = [(column.name, goal) for column in COLUMNS for goal in GOALS]
    lost = [
        f"{goal} of {column}"
        for column, goal in every
        if gain_in_print("map", "fedavg", column, goal) <= 0
    ]
    won = len(every) - len(lost)
    return f"MAP is above FedAvg in {won} of {len(every)}; not in {' and '.join(lost)}."


def best_in_print(goal: str, wanted: Sequence[str]) -> str:
    """In how many printed columns each of some methods is above FedAvg, and how often nobody else
    among the single methods is above it."""
    others = [m for m in METHODS_OF[goal] if m not in (*COMBINED, *wanted)]
    names = [column.name for column in COLUMNS]
    told = []
    for method in wanted:
        won = sum(gain_in_print(method, "fedavg", column, goal) > 0 for column in names)
        first = sum(
            all(gain_in_print(method, m, column, goal) >= 0 for m in others) for column in names
        )
        told.append(
            f"{METHODS[method].__name__} is above FedAvg in {won} of {len(names)} columns, and no "
            f"other single method is above it in {first}"
        )
    return "; ".join(told) + "."


def rivals_in_print() -> str:
    """Who is above MAP in both as printed, by column."""
    found: dict[str, list[str]] = {}
    for column in (column.name for column in COLUMNS):
        for method in METHODS_OF["global"]:
            if method not in ("map", "scamap") and all(
                gain_in_print(method, "map", column, goal) > 0 for goal in GOALS
            ):
                found.setdefault(METHODS[method].__name__, []).append(column)
    told = (f"{method} on {' and '.join(columns)}" for method, columns in found.items())
    return f"above MAP in both are {', '.join(told)}; in the averages over columns nobody is."
