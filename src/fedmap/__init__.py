"""fedmap: federated learning for clients that do not see every class."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmap.check import check_method
    from fedmap.data import load
    from fedmap.diagnosis import Diagnosis, inspect
    from fedmap.errors import FedmapError
    from fedmap.experiment.compare import Comparison, compare
    from fedmap.experiment.sweep import sweep
    from fedmap.federation import Federation, partition
    from fedmap.methods import Method, register
    from fedmap.report.page import write_report
    from fedmap.simulate.callbacks import Callback
    from fedmap.simulate.result import Result
    from fedmap.simulate.run import run

__all__ = [
    "Callback",
    "Comparison",
    "Diagnosis",
    "Federation",
    "FedmapError",
    "Method",
    "Result",
    "check_method",
    "compare",
    "inspect",
    "load",
    "partition",
    "register",
    "run",
    "sweep",
    "write_report",
]

# Loaded when first used: `fedmap --help` must not wait for torch.
_HOME = {
    "Callback": "simulate.callbacks",
    "Comparison": "experiment.compare",
    "Diagnosis": "diagnosis",
    "Federation": "federation",
    "FedmapError": "errors",
    "Method": "methods",
    "Result": "simulate.result",
    "check_method": "check",
    "compare": "experiment.compare",
    "inspect": "diagnosis",
    "load": "data",
    "partition": "federation",
    "register": "methods",
    "run": "simulate.run",
    "sweep": "experiment.sweep",
    "write_report": "report.page",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fedmap' has no attribute {name!r}")
    return getattr(import_module(f"fedmap.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
