"""Which of a method's three groups of parameters is the best one, as the paper chooses it."""

from statistics import mean

from fedmap.paper.federated import Who
from fedmap.paper.groups import GROUPS
from fedmap.paper.study import Row


def of(rows: list[Row], who: Who, column: str, number: str) -> list[float]:
    """One number of each of its runs that ended, seed by seed."""
    where = (*who, column)
    mine = [r for r in rows if (r["method"], r["group"], r["column"]) == where]
    return [r[number] for r in mine if r[number] is not None]


def seeds_of(rows: list[Row], who: Who, column: str) -> list[int]:
    """Those of its runs that ended."""
    where = (*who, column, "done")
    names = ("method", "group", "column", "outcome")
    return sorted(r["seed"] for r in rows if tuple(r[name] for name in names) == where)


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
