"""Runs that are spread over a cluster, as far as it goes without one; tests/federation has one."""

from types import SimpleNamespace
from typing import Any

from fedmap.experiment.spread import end


def test_calls_that_nobody_waits_for_have_ended_before_the_driver_leaves() -> None:
    did: list[tuple[str, Any]] = []
    ray: Any = SimpleNamespace(
        cancel=lambda call, force: did.append(("cancel", call)),
        wait=lambda calls, num_returns, timeout: did.append(("wait", (calls, num_returns))),
    )
    end(ray, ["one", "other"])
    assert did == [("cancel", "one"), ("cancel", "other"), ("wait", (["one", "other"], 2))]
    did.clear()
    end(ray, [])
    assert did == []  # Ray refuses to wait for nothing
