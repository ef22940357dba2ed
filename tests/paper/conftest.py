"""Rows as the studies collect them, written by hand."""

from collections.abc import Callable

import pytest

from fedmap.paper.study import Row

RunRow = Callable[..., Row]
Pair = tuple[float | None, float | None]


@pytest.fixture
def run_row() -> RunRow:
    """A row of one federated run, from its global and personal accuracy."""

    def build(method: str, last: Pair, last_10: Pair | None = None, **where: object) -> Row:
        steady = last if last_10 is None else last_10
        row = {
            "column": "fashion-mnist/mlp",
            "method": method,
            "group": "default",
            "seed": 0,
            "rounds": 150,
            "outcome": "diverged" if last == (None, None) else "done",
            "global": last[0],
            "global_last_10": steady[0],
            "personal": last[1],
            "personal_last_10": steady[1],
            "personal_all_clients": last[1],
        }
        return row | where

    return build
