"""The federated methods, one module each. A module here is found and registered by itself."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from fedmap.methods.base import (
    METHODS,
    AnyMethod,
    Local,
    Method,
    MethodParams,
    Predictor,
    Server,
    Upload,
    mean,
    register,
)
from fedmap.methods.resolve import find_method, method_name, parameters_of, variant

__all__ = [
    "METHODS",
    "AnyMethod",
    "Local",
    "Method",
    "MethodParams",
    "Predictor",
    "Server",
    "Upload",
    "find_method",
    "mean",
    "method_name",
    "parameters_of",
    "register",
    "variant",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")


def __getattr__(name: str) -> Any:
    """A method's class by its own name: `from fedmap.methods import FedRS`."""
    for method in METHODS.values():
        if method.__name__ == name:
            return method
    raise AttributeError(f"module 'fedmap.methods' has no attribute {name!r}")
