"""What runs the tasks of a round: this process, or local processes. A module here is found and
registered by itself."""

from importlib import import_module
from pkgutil import iter_modules

from fedmap.simulate.engines.base import ENGINES, Engine

__all__ = ["ENGINES", "Engine"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
