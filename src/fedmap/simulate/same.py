"""Is it the same run? What run.toml says of the federation and of the machine, and what a run that
goes on must have in common with what was begun."""

import platform
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from fedmap import own_code
from fedmap.errors import FedmapError
from fedmap.federation import AnyFederation
from fedmap.simulate.folder import RunFolder, resume_command
from fedmap.simulate.settings import (
    NO_NUMBERS,
    Settings,
    described,
    read_code,
    read_federation,
    read_table,
)


def about(federation: AnyFederation) -> dict[str, Any]:
    """What run.toml says of a federation."""
    dataset = federation.dataset
    return {"shape": list(dataset.shape), "classes": list(dataset.classes)} | federation.marks


def machine() -> dict[str, dict[str, str]]:
    """What the last bits of numbers also depend on: tables of run.toml."""
    instructions = torch.backends.cpu.get_cpu_capability()
    processor = {"machine": platform.machine(), "instructions": instructions}
    return {"versions": versions() | {"python": platform.python_version()}, "processor": processor}


@cache
def versions() -> dict[str, str]:
    """Of the packages that a run computes with; once, because files of each are read for it."""
    return {name: version(name) for name in ("fedmap", "torch", "numpy")}


def refuse_another_run(
    settings: Settings, federation: AnyFederation, folder: RunFolder, more: bool
) -> bool:
    """Is it the same run with more rounds, where that is allowed? All else is refused."""
    path = folder.description
    found = described(path)
    same = all(found.get(name) == getattr(settings, name) for name in ("method", "net"))
    # Code is run only where it is what this run has run already.
    whole = Settings.of(found | settings.own) if same else Settings.kept(found, {})
    kept = whole.model_dump(exclude=NO_NUMBERS)
    more = more and settings.rounds > kept["rounds"]
    if more:
        kept["rounds"] = settings.rounds
    for name, value in settings.model_dump(exclude=NO_NUMBERS).items():
        if value != kept[name]:
            raise FedmapError(
                f"{folder.path} holds another run: {unlike(name, kept[name], value)}; "
                "choose another folder"
            )
    changed_code = own_code.changed(read_code(path), settings.code)
    if changed_code:
        raise FedmapError(f"{folder.path} holds a run of other code: {changed_code}")
    refuse_another_federation(folder, federation)
    return more


def unlike(name: str, before: Any, now: Any) -> str:
    """How one setting of a run differs from what is asked for now; of parameters those that do."""
    if name == "rounds":
        how = "goes on to more only with resume" if now > before else "can never have fewer"
        return f"it has {before} rounds, not {now}, and {how}"
    if name == "device":
        before, now = before or "cpu", now or "cpu"
    if isinstance(before, dict) and isinstance(now, dict):
        both = [key for key in before | now if before.get(key) != now.get(key)]
        told = (f"{key} is {before.get(key)!r}, not {now.get(key)!r}" for key in both)
        return f"of its {name}, {', '.join(told)}"
    return f"its {name} is {before!r}, not {now!r}"


def refuse_another_federation(folder: RunFolder, federation: AnyFederation) -> None:
    """Refuse a run whose data or clients are others by now."""
    differs = difference(read_federation(folder.description), federation)
    if differs:
        raise FedmapError(
            f"{folder.path} holds a run on another federation: {differs}; choose another folder"
        )


def refuse_another_machine(folder: RunFolder, anyway: bool) -> None:
    """Refuse to go on where the same settings would give other bits, unless that is wanted."""
    changes = [
        f"{name} was {value} and is {found.get(name)}"
        for table, found in machine().items()
        for name, value in read_table(folder.description, table).items()
        if value != found.get(name)
    ]
    if changes and not anyway:
        raise FedmapError(
            f"the run in {folder.path} would not give the numbers of one that was never "
            f"stopped: {', '.join(changes)}; go on all the same with: "
            f"{resume_command(folder.path)} --anyway (anyway=True in Python)"
        )
    if changes:
        folder.tell(f"the run goes on although {', '.join(changes)}")


# What changed where an entry of `about` does.
DIFFERENCES = {
    "shape": "the shape of a sample",
    "classes": "the classes",
    "clients": "the clients",
    "samples": "the number of samples",
    "fingerprint": "a label, or who holds which samples,",
    "content": "the values of the samples",
    "test_labels": "a label of the test set",
}


def difference(kept: dict[str, Any], federation: AnyFederation) -> str:
    """What is not as `about` has described it; nothing where all is."""
    found = about(federation)
    for name, what in DIFFERENCES.items():
        if name in kept and kept[name] != found.get(name):
            now = found.get(name)
            entries = changed(kept[name], now or []) if name in ("classes", "clients") else ""
            numbers = f" ({kept[name]} then, {now} now)"
            shown = entries or (numbers if name in ("shape", "samples") else "")
            return f"{what} changed{shown}"
    return ""


def changed(before: list[str], now: list[str]) -> str:
    """Which names are not in both lists."""
    gone, new = ([name for name in a if name not in b] for a, b in ((before, now), (now, before)))
    parts = [f"{what}: {', '.join(names)}" for what, names in (("gone", gone), ("new", new))]
    return f" ({'; '.join(part for part in parts if not part.endswith(': '))})"
