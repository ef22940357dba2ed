"""The official sets, one module for each. A module that is put here is found and registered."""

import pkgutil
from importlib import import_module


def import_all() -> None:
    """Import every module in this folder; each registers its set."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
