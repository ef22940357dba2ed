"""The paper's numbers against a second copy, taken from the paper's source by a program."""

import csv
from pathlib import Path
from typing import Any

import pytest

from fedmap.methods import METHODS, find_method
from fedmap.paper.groups import GROUPS
from fedmap.paper.published import COMPLETE, PUBLISHED, WORSE_OFF

COPIES = Path(__file__).parent / "published"


def copy_of(name: str) -> list[dict[str, str]]:
    with open(COPIES / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("goal", "name"), [("global", "table-1"), ("personal", "table-2")])
def test_every_cell_of_tables_1_and_2_is_the_printed_one(goal: str, name: str) -> None:
    cells = {
        (line["method"], column): float(value)
        for line in copy_of(name)
        for column, value in line.items()
        if column != "method"
    }
    assert cells == PUBLISHED[goal]


def test_every_cell_of_table_3_is_the_printed_one() -> None:
    cells = {r["method"]: (float(r["global"]), float(r["personal"])) for r in copy_of("table-3")}
    assert cells == COMPLETE


def test_the_methods_of_the_tables_are_in_the_printed_order() -> None:
    for goal, name in (("global", "table-1"), ("personal", "table-2")):
        methods = list(dict.fromkeys(method for method, _ in PUBLISHED[goal]))
        assert methods == [line["method"] for line in copy_of(name)]
    assert list(COMPLETE) == [line["method"] for line in copy_of("table-3")]


def test_the_printed_number_of_clients_that_lose() -> None:
    assert WORSE_OFF == 16


# of the authors' release, one column for each parameter
RELEASED: dict[str, dict[str, tuple[Any, ...]]] = {
    "fedprox": {"mu": (1e-4, 1e-3, 1e-2)},
    "fedmmd": {"weight": (1e-3, 1e-2, 1e-1)},
    "scaffold": {"server_lr": (0.5, 0.75, 0.9)},
    "feddf": {"distill_lr": (1e-2, 1e-3, 1e-4), "distill_steps": (200, 300, 500)},
    "fedopt": {"server_lr": (1.0, 0.1, 0.05)},
    "fednova": {"server_momentum": (0.9, 0.5, 0.3), "mu": (1e-4, 1e-3, 1e-2)},
    "fedaws": {
        "margin": (0.9, 0.8, 0.5),
        "spread_steps": (20, 30, 50),
        "spread_lr": (1.0, 0.1, 0.01),
    },
    "moon": {"weight": (1e-3, 1e-2, 1e-1)},
    "feddyn": {"alpha": (1e-3, 1e-2, 1e-1)},
    "pfedme": {
        "weight": (0.1, 0.01, 0.001),
        "alpha": (0.9, 0.75, 0.5),
        "inner_steps": (5, 10, 15),
        "beta": (1, 1, 1),
    },
    "perfedavg": {"beta": (0.1, 0.05, 0.01), "inner": (1, 1, 1)},
    "fedproto": {"weight": (0.1, 0.01, 0.001)},
    "ditto": {"weight": (0.1, 0.01, 0.001)},
    "fedrod": {"gamma": (1.0, 0.5, 0.25)},
    "fedrs": {"alpha": (0.9, 0.5, 0.1)},
    "fedphp": {"transfer": ("kd", "mmd", "mmd"), "weight": (0.1, 0.1, 0.01)},
    "dittors": {"alpha": (0.1, 0.9, 0.5), "weight": (0.1, 0.01, 0.001)},
    "scars": {"alpha": (0.1, 0.9, 0.5), "server_lr": (0.5, 0.75, 0.9)},
    "map": {
        "transfer": ("kd", "kd", "mmd"),
        "weight": (0.1, 0.01, 0.01),
        "alpha": (0.5, 0.9, 0.5),
    },
    "scamap": {
        "transfer": ("kd", "kd", "mmd"),
        "weight": (0.1, 0.01, 0.01),
        "alpha": (0.5, 0.9, 0.5),
        "server_lr": (0.5, 0.9, 0.5),
    },
}


@pytest.mark.parametrize("method", sorted(set(METHODS)))
def test_the_groups_of_a_method_are_the_released_ones(method: str) -> None:
    columns = RELEASED.get(method, {})
    lines = [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
    assert GROUPS.get(method, []) == lines


@pytest.mark.parametrize("method", sorted(GROUPS))
def test_a_method_takes_each_of_its_groups(method: str) -> None:
    for group in GROUPS[method]:
        params = find_method(method)(**group).params.model_dump()
        assert params | group == params
