"""What all trackers share: where they write, and what of a run they are told."""

import importlib
from pathlib import Path
from typing import Any, ClassVar

from fedmap.errors import FedmapError
from fedmap.simulate.callbacks import Callback, Start
from fedmap.simulate.folder import TRACK, Record, write_atomically
from fedmap.simulate.settings import Settings


class Tracker(Callback):
    """Writes below `where`, or else into the run's own folder."""

    name: ClassVar[str]  # of the extra
    modules: ClassVar[tuple[str, ...]]  # what it needs

    def __init__(self, where: Path | str | None = None) -> None:
        self.where = None if where is None else Path(where)
        for module in self.modules:
            try:
                importlib.import_module(module)
            except ImportError:
                raise FedmapError(
                    f"tracking with {self.name} needs the package {module.partition('.')[0]}; "
                    f"install it with: pip install 'fedmap[{self.name}]'"
                ) from None

    def own_folder(self, start: Start) -> Path | None:
        """A folder of its own in that of the run, if the run has one."""
        return start.folder and start.folder / TRACK / self.name

    def place(self, usual: Path | None) -> Path:
        """The folder to write to, which is made: the one that was given, else the usual one."""
        place = self.where or usual
        if place is None:
            raise FedmapError(
                f"tracking with {self.name} needs a folder to write to, and the run has none; give "
                f"the run `out`, or the tracker a folder: {type(self).__name__}(FOLDER)"
            )
        place.mkdir(parents=True, exist_ok=True)
        return place

    def kept_id(self, start: Start) -> str | None:
        """The id that the run had at its last start, if it had one."""
        file = self._id(start)
        return file.read_text() if file and file.exists() else None

    def keep_id(self, start: Start, id: str) -> None:
        """What `kept_id` will give; a run without a folder never goes on."""
        file = self._id(start)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, id.encode())

    def _id(self, start: Start) -> Path | None:
        return start.folder and start.folder / TRACK / f"{self.name}-id"


def numbers(record: Record, prefix: str = "") -> dict[str, float]:
    """What of a record, or of a run's end, is a number; and how many uploads were left out."""
    found = {f"{prefix}{name}": float(n) for name, n in record.items() if is_number(n)}
    left_out = {"left_out": float(len(record["left_out"]))} if "left_out" in record else {}
    return {name: n for name, n in found.items() if name != "round"} | left_out


def is_number(value: object) -> bool:
    """Is it a number?"""
    return isinstance(value, int | float)


def flat(settings: Settings) -> dict[str, Any]:
    """Every setting that has a value; a method's parameters as params.NAME."""
    found: dict[str, Any] = {}
    for name, value in settings.model_dump(exclude_none=True).items():
        several = value if isinstance(value, dict) else {}
        found |= {f"{name}.{key}": one for key, one in several.items()} or {name: value}
    return {name: value for name, value in found.items() if value != {}}


def title(start: Start) -> str:
    """What the run is called: as its folder."""
    folder = start.folder or Path(start.settings.name)
    return folder.resolve().name
