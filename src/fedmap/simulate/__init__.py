"""The simulator: rounds, engines, client states, run folders."""

from fedmap.simulate.result import Result
from fedmap.simulate.run import Run
from fedmap.simulate.settings import Settings, read_toml

__all__ = ["Result", "Run", "Settings", "read_toml"]
