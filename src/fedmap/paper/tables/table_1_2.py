"""Tables 1 and 2: aggregation and personalization of every method, with the paper's three groups of
parameters and with the defaults."""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from statistics import mean, stdev
from typing import ClassVar

from fedmap.methods import METHODS
from fedmap.paper.federated import (
    COLUMNS,
    FEDAVG,
    FederatedRun,
    RunStudy,
    Who,
    by_seed,
    contenders,
    cut,
    difference,
    failures,
    gains_of,
    place,
    shown_name,
    trusted,
    values,
    words,
)
from fedmap.paper.finding import Estimate, Finding, Verdict, not_tested, signed
from fedmap.paper.groups import GROUPS
from fedmap.paper.published import PUBLISHED
from fedmap.paper.study import GOALS, STUDIES, Choice, Claim, Report, Row, Scale, names_of
from fedmap.report.table import Table

CAPTIONS = {
    "global": "Aggregation (Table 1), accuracy in %: mean of the last ten rounds ± standard "
    "deviation over seeds, difference from FedAvg ± its standard error, last round",
    "personal": "Personalization (Table 2), accuracy in %: mean of all clients ± standard "
    "deviation over seeds, difference from FedAvg over the same clients ± its standard error, last "
    "round",
}
STEADIEST = {"global": "global_last_10", "personal": "personal_all_clients"}
# the paper's methods in its order: two of them have no global model and are in Table 2 alone
METHODS_OF = {goal: list(dict.fromkeys(m for m, _ in PUBLISHED[goal])) for goal in GOALS}
# clients alone are no method of the paper but what its Ditto comes to
ORDER = [*METHODS_OF["personal"], *(name for name in ("local",) if name in METHODS)]
COMBINED = ("dittors", "scars", "map", "scamap")  # all others are single methods
NO_OTHERS = ("map", "scamap")  # ScaMAP is MAP too
MAP, FEDPHP = ("map", "default"), ("fedphp", "default")
BEST = "best group"


class Tables12(RunStudy):
    """All methods, with the paper's settings and its three groups of parameters."""

    line = "Aggregation and personalization of 23 methods on 4 datasets with 2 networks each"
    paper = "Tables 1 and 2"
    columns: ClassVar[Sequence[str]] = [column.name for column in COLUMNS]
    methods: ClassVar[Sequence[str]] = ORDER

    def default_columns(self, scale: Scale) -> Sequence[str]:
        return self.columns[: {"small": 4, "smoke": 1}.get(scale)]

    def cuts(self, scale: Scale) -> list[str]:
        groups = "default parameters instead of the best of three groups"
        return [] if scale == "paper" else [*words(cut(scale)), groups]

    def work(self, choice: Choice) -> list[FederatedRun]:
        return list(runs(choice))

    def report(self, rows: list[Row]) -> Report:
        tables = {goal: goal_table(rows, goal) for goal in GOALS}
        return Report(tables, notes=[*notes(rows), *ditto_alone(rows), *failures(rows)])

    def not_run(self, rows: list[Row]) -> list[str]:
        columns: dict[str, list[str]] = {}
        for name in names_of(rows, "column"):
            done = [METHODS[m].__name__ for m in GROUPS if compared_groups(rows, m, name)]
            columns.setdefault(f" (but for {', '.join(done)})" if done else "", []).append(name)
        return [
            f"the three groups of parameters on {', '.join(names)}{but}"
            for but, names in columns.items()
        ]

    def claims(self) -> list[Claim]:
        singles = partial(best_single, goal="global", wanted=("fedrs", "scaffold"))
        hpm = partial(best_single, goal="personal", wanted=("fedphp",))
        return [
            Claim("MAP is above FedAvg in aggregation and in personalization", above_fedavg),
            Claim("FedRS and Scaffold are the best single methods for aggregation", singles),
            Claim("FedPHP, the HPM alone, is the best single method for personalization", hpm),
            Claim("No other method is above MAP in both", nobody_above_in_both),
        ]


STUDIES.add("table-1-2")(Tables12())


def runs(choice: Choice) -> Iterator[FederatedRun]:
    """All runs; those that share a federation come one after the other."""
    for name in choice.columns:
        given = place(name, choice.scale)
        for seed in choice.seeds:
            for group, run in contenders(choice.methods, partial(groups, choice=choice)):
                yield FederatedRun(choice, name, group, **given, **run, seed=seed)


def groups(method: str, choice: Choice) -> dict[str, Row]:
    """The method's default parameters; at the paper's scale also its three groups, where there is
    something to vary."""
    if choice.defaults_only or choice.scale != "paper":
        return {"default": {}}
    three = {f"group {i}": params for i, params in enumerate(GROUPS.get(method, []), 1)}
    return {"default": {}} | three


def of(rows: list[Row], who: Who, column: str, number: str) -> list[float]:
    """One number of each of its runs that ended, seed by seed."""
    where = (*who, column)
    mine = [r for r in rows if (r["method"], r["group"], r["column"]) == where]
    return [r[number] for r in mine if r[number] is not None]


def compared_groups(rows: list[Row], method: str, column: str) -> list[str]:
    """A method's three groups, once all of them were run with the same seeds; those that ended with
    every seed."""
    names = [f"group {i}" for i in range(1, len(GROUPS.get(method, [])) + 1)]
    three: dict[str, dict[int, str]] = {name: {} for name in names}
    for r in rows:
        if (r["method"], r["column"]) == (method, column) and r["group"] in three:
            three[r["group"]][r["seed"]] = r["outcome"]
    seeds = {tuple(sorted(outcomes)) for outcomes in three.values()}
    if len(seeds) != 1 or seeds == {()}:
        return []
    return [group for group, outcomes in three.items() if set(outcomes.values()) == {"done"}]


def best_group(rows: list[Row], method: str, column: str, goal: str) -> str | None:
    """As the paper chooses: of a method's three groups, the one whose last round is the highest."""
    found = {
        group: mean(mine)
        for group in compared_groups(rows, method, column)
        if (mine := of(rows, (method, group), column, goal))
    }
    return max(found, key=lambda name: found[name]) if found else None


def lines_of(rows: list[Row]) -> list[Who]:
    """A line for each method and group that has rows, in the paper's order; a method's best group
    has one too, where it is known."""
    there = dict.fromkeys((r["method"], r["group"]) for r in rows)
    columns = names_of(rows, "column")
    lines: list[Who] = []
    for method in ORDER:
        groups = [group for name, group in there if name == method]
        known = any(compared_groups(rows, method, column) for column in columns)
        lines += [(method, group) for group in [*([BEST] if known else []), *groups]]
    return lines


def goal_table(rows: list[Row], goal: str) -> Table:
    """For each column: the steadiest number, the difference from FedAvg, the last round, and the
    paper's."""
    columns = [name for name in Tables12.columns if any(r["column"] == name for r in rows)]
    head = ["method"]
    for name in columns:
        seeds = {r["seed"] for r in rows if r["column"] == name}
        steady = "last 10" if goal == "global" else "all clients"
        steady += f", seed {min(seeds)}" if len(seeds) == 1 else ""
        head += [f"{name} {steady}", "from FedAvg", "last round", "paper"]
    lines = [
        [shown_name(*who), *(c for name in columns for c in cells(rows, who, name, goal))]
        for who in lines_of(rows)
    ]
    there = [line for line in lines if set(line[1:]) != {"-"}]  # clients alone have no global model
    return Table(CAPTIONS[goal], head, there)


def cells(rows: list[Row], who: Who, column: str, goal: str) -> list[str]:
    """A line's four cells in one column."""
    method, group = who
    printed = PUBLISHED[goal].get((method, column))
    paper = f"{printed:.1f}" if printed is not None and group in ("default", BEST) else "-"
    chosen = best_group(rows, method, column, goal) if group == BEST else group
    here = [r for r in rows if (r["method"], r["group"], r["column"]) == (method, chosen, column)]
    if chosen is None or not of(rows, (method, chosen), column, goal):
        lost = any(r["outcome"] == "diverged" for r in here)
        return ["diverged" if lost else "-", "-", "-", paper]
    gain = difference([r for r in rows if r["column"] == column], (method, chosen), FEDAVG, goal)
    last = f"{mean(of(rows, (method, chosen), column, goal)):.1f}"
    ours = of(rows, (method, chosen), column, STEADIEST[goal])
    # Levels of other seeds than FedAvg's are not to be compared; the difference is.
    seeds, usual = (seeds_of(rows, who, column) for who in ((method, chosen), FEDAVG))
    other = bool(usual) and seeds != usual
    return [
        with_spread(ours) + (f" (seed {', '.join(map(str, seeds))})" if other else ""),
        "-" if gain is None or who == FEDAVG else str(gain),
        f"{last} ({chosen})" if group == BEST else last,
        paper,
    ]


def seeds_of(rows: list[Row], who: Who, column: str) -> list[int]:
    """Those of its runs that ended."""
    where = (*who, column, "done")
    names = ("method", "group", "column", "outcome")
    return sorted(r["seed"] for r in rows if tuple(r[name] for name in names) == where)


def with_spread(numbers: list[float]) -> str:
    """Mean and, of several, standard deviation."""
    return f"{mean(numbers):.1f}" + (f" ± {stdev(numbers):.1f}" if len(numbers) > 1 else "")


def notes(rows: list[Row]) -> list[str]:
    """What MAP gains with each single setting in both goals, and with the best group for each goal,
    as the paper has it."""
    sentences = []
    for column in names_of(rows, "column"):
        mine = [r for r in rows if r["column"] == column]
        settings = [who for who in lines_of(mine) if who[0] == "map" and who[1] != BEST]
        gains = {who[1]: gains_of(mine, who) for who in settings}
        if gains and None not in gains.values():
            told = ", ".join(f"{group} {gain}" for group, gain in gains.items())
            sentences.append(f"{column}, MAP from FedAvg with one setting for both goals: {told}.")
        if seeds := [told for who in (MAP, FEDPHP) if (told := seed_by_seed(mine, who, column))]:
            sentences.append(f"{column}, personal gains by seed: {'; '.join(seeds)}.")
        chosen = {goal: best_group(mine, "map", column, goal) for goal in GOALS}
        if all(chosen.values()):
            parts = (
                f"{goal} {difference(mine, ('map', str(group)), FEDAVG, goal)} ({group})"
                for goal, group in chosen.items()
            )
            sentences.append(
                f"{column}, MAP from FedAvg with the best group for each goal, as the paper "
                f"reports it: {', '.join(parts)}."
            )
    return sentences


def seed_by_seed(rows: list[Row], who: Who, column: str) -> str:
    """How far it is above FedAvg in personalization with each seed, and their mean with its error:
    clients of one seed share a global model, so the error over clients is too small."""
    gains = by_seed(rows, who, FEDAVG, "personal", column)
    if len(gains) < 2:
        return ""
    means = [mean(gains[seed]) for seed in sorted(gains)]
    return f"{shown_name(*who)} {', '.join(map(signed, means))} (mean {Estimate.of(means)})"


def ditto_alone(rows: list[Row]) -> list[str]:
    """The published Ditto beside clients that train alone, where they were run."""
    sentences = []
    for column in names_of(rows, "column"):
        alone, ours = (level(rows, method, column) for method in ("local", "ditto"))
        if alone and ours:
            sentences.append(
                f"{column}: clients that train alone have {alone}, Ditto here has {ours} (all "
                f"clients, ± standard error over them); the paper prints "
                f"{PUBLISHED['personal']['ditto', column]} for Ditto, whose pull its code divides "
                "to nothing."
            )
    return sentences


def level(rows: list[Row], method: str, column: str) -> str:
    """The personal accuracy over all clients of all seeds, with its standard error."""
    mine = [
        r for r in rows if (r["method"], r["group"], r["column"]) == (method, "default", column)
    ]
    every = [accuracy for r in mine for accuracy in values(r, "personal")]
    return Estimate.of(every).plain(1) if every else ""


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


def too_few(claim: str, *methods: str) -> Finding:
    """The finding where no column has enough runs."""
    return not_tested(claim, f"no column has {' and '.join(methods)} with enough seeds")


def some_missing(columns: Collection[str]) -> bool:
    """Are there columns of the paper that were not run?"""
    return len(columns) < len(COLUMNS)


def in_columns(columns: Collection[str]) -> str:
    """How many of the paper's columns a finding rests on."""
    return f"{len(columns)} of {len(COLUMNS)} columns"


def in_short(
    columns: dict[str, list[Row]], methods: Sequence[str], tell: Callable[[list[Row]], str]
) -> str:
    """What the columns say of some methods together. Those where these share a single seed with
    FedAvg, so that the global gain has no error, are told apart."""

    def shared(column: str) -> int:
        seeds = (seeds_of(columns[column], (m, "default"), column) for m in ("fedavg", *methods))
        return len(set.intersection(*map(set, seeds)))

    single = {column: mine for column, mine in columns.items() if shared(column) == 1}
    several = [r for column, mine in columns.items() if column not in single for r in mine]
    together = [tell(several)] if several else []
    alone = [f"{tell(mine)} ({column}, one seed)" for column, mine in single.items()]
    return f"{', '.join([*together, *alone])}, {in_columns(columns)}"


def few(methods: Collection[str]) -> str:
    """The names of at most three methods, else how many they are."""
    return ", ".join(map(shown_name, sorted(methods))) if len(methods) <= 3 else str(len(methods))


def counted(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" + "s" * (number != 1)


def above_fedavg(claim: str, rows: list[Row]) -> Finding:
    """MAP with its default setting is above FedAvg in both accuracies in every column; in part: in
    one accuracy in one column."""
    columns = judged(rows, GOALS, "map")
    if not columns:
        return too_few(claim, "MAP", "FedAvg")
    won = [above(mine, "map", "fedavg", goal) for mine in columns.values() for goal in GOALS]
    parts = [
        f"{column} {gains_of(mine, MAP)}{small_gains(mine)}"
        + over_seeds(mine, ["map"], column, "personal")
        for column, mine in columns.items()
    ]
    verdict = Verdict.of(all(won), any(won))
    short = in_short(columns, ["map"], lambda mine: str(gains_of(mine, MAP)))
    short += f", {sum(won)} of {len(won)} gains by more than chance"
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
    """Each of the named methods is above FedAvg in every column, and no other single method is
    above one of them; in part: one of them is above FedAvg in every column, and no other single
    method is above it in one column."""
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
        more = best_groups(rows, wanted, column, goal) + over_seeds(mine, wanted, column, goal)
        parts.append(f"{told}. {among}: {rivals}{more}")
    in_part = any(
        all(above_it) and any(nobody)
        for above_it, nobody in zip(zip(*won, strict=True), zip(*best, strict=True), strict=True)
    )
    times = zip(wanted, map(sum, zip(*won, strict=True)), strict=True)
    counts = ", ".join(f"{METHODS[m].__name__} in {n} of {len(won)}" for m, n in times)
    short = in_short(columns, wanted, lambda mine: from_fedavg(mine, wanted, goal))
    short += f", above it by more than chance: {counts}"
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


def over_seeds(rows: list[Row], methods: Sequence[str], column: str, goal: str) -> str:
    """Whose personal gain counts by the error over clients and would not by that over seeds, which
    is the one for other federations."""
    gains = {m: by_seed(rows, (m, "default"), FEDAVG, goal, column) for m in methods}
    means = {m: Estimate.of([mean(own) for own in some.values()]) for m, some in gains.items()}
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
    """No method but ScaMAP is above MAP in both accuracies in any column; in part: in some column.
    Columns that have no other method than FedAvg do not count."""
    columns = {
        column: (mine, others)
        for column, mine in judged(rows, GOALS, "map").items()
        if (others := others_of(mine)) != ["fedavg"]
    }
    if not columns:
        return too_few(claim, "MAP", "FedAvg", "another method")
    parts, nobody, so_far = [], [], some_missing(columns)
    anybody: set[str] = set()
    for column, (mine, others) in columns.items():
        better = [m for m in others if all(above(mine, m, "map", goal) for goal in GOALS)]
        nobody.append(not better)
        anybody |= set(better)
        so_far |= len(others) < len(METHODS_OF["global"]) - len(NO_OTHERS)
        told = ", ".join(map(shown_name, better)) or "none"
        among = f"of {counted(len(others), 'other')} with enough seeds"
        parts.append(f"{column}, above MAP in both, {among}: {told}")
    everybody = {m for _, others in columns.values() for m in others}
    short = f"{few(anybody) or 'none'} of {counted(len(everybody), 'other')}, {in_columns(columns)}"
    return Finding(claim, Verdict.of(all(nobody), any(nobody)), "; ".join(parts), short, so_far)


def others_of(rows: list[Row]) -> list[str]:
    """The methods with a global model that MAP is compared with."""
    there = names_of(rows, "method")
    return [m for m in there if m in METHODS_OF["global"] and m not in NO_OTHERS]
