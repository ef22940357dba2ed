"""Which runs a page is about: folders, what state each run is in, and what to call it."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedmap.errors import FedmapError
from fedmap.methods import METHODS
from fedmap.report.clients import ALONE
from fedmap.report.command import not_defaults
from fedmap.simulate.folder import Record
from fedmap.simulate.look import Look
from fedmap.simulate.result import Result, summary
from fedmap.simulate.settings import NO_NUMBERS, Settings, described, read_federation

NUMBERS = ("round", "seconds", "bytes_down", "bytes_up")  # that every record has
ACCURACIES = ("global_accuracy", "personal_accuracy")  # that may be unknown
DONE, DIVERGED = "done", "diverged"  # of the states of a run


class Found(NamedTuple):
    """One run as it stands now. What an unfinished one does not know yet is not in its final."""

    result: Result
    state: str
    note: str = ""


class Shown(NamedTuple):
    """The runs of a page by label, one for each seed; and folders that cannot be read, with the
    reason."""

    runs: dict[str, list[Found]]
    damaged: dict[Path, str]

    @property
    def results(self) -> dict[str, list[Result]]:
        """The runs that have rounds, without those that diverged."""
        return {
            label: [one.result for one in found if one.state != DIVERGED and one.result.rounds]
            for label, found in self.runs.items()
        }

    @property
    def all(self) -> list[Found]:
        """Every run that could be read."""
        return [one for found in self.runs.values() for one in found]


def shown(paths: Sequence[Path | str | Result]) -> Shown:
    """The runs in some folders, each of a run or of several; results count as they are."""
    damaged: dict[Path, str] = {}
    found: list[Found] = []
    for path in paths:
        if isinstance(path, Result):
            found.append(Found(path, DONE))
            continue
        for folder in run_folders(Path(path)):
            try:
                found.append(read(folder))
            except FedmapError as wrong:
                damaged[folder] = str(wrong)
    if not found:
        raise FedmapError(next(iter(damaged.values()), "there is no run to report; give a folder"))
    refuse_different_data(found)
    return Shown(labeled(once(found)), damaged)


def of_results(results: dict[str, list[Result]]) -> Shown:
    """Finished runs that have their labels already."""
    runs = {label: [Found(run, DONE) for run in of] for label, of in results.items()}
    return Shown(runs, {})


def run_folders(path: Path) -> list[Path]:
    """The folder itself, if it is a run's, or the runs' folders in it."""
    if (path / "run.toml").is_file():
        return [path]
    if not path.is_dir():
        raise FedmapError(f"there is no folder {path}; give a run's folder, or one with runs in it")
    files = [*path.glob("*/run.toml"), *path.glob("*/*/run.toml")]
    folders = sorted(file.parent for file in files if file.parent.name != "checkpoint")
    if not folders:
        raise FedmapError(
            f"{path} holds no run: neither it nor a folder in it has a run.toml; give the folder "
            "of a run, a comparison or a sweep"
        )
    return folders


def read(path: Path) -> Found:
    """A run as it stands: finished, or up to its last whole round."""
    look = Look(path)
    if look.state == DONE:
        return Found(Result.read(path), DONE)
    file = path / "run.toml"
    settings, about = Settings.kept(described(file), {}), read_federation(file)
    for name in ("classes", "clients"):
        if not all(isinstance(one, str) for one in _listed(about.get(name, []))):
            raise FedmapError(f"{file} is damaged: {name} of the federation are no names")
    rounds = checked(look.records, path / "rounds.jsonl")
    result = Result(settings, rounds, summary(rounds) if rounds else {}, path, about)
    return Found(result, look.state, look.sentence())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def checked(records: list[Record], path: Path) -> list[Record]:
    """The records of a run that is not finished, if they have the numbers that are shown."""
    for record in records:
        for name in (*NUMBERS, *ACCURACIES):
            value = record.get(name, "nothing")
            unknown = value is None and name in ACCURACIES
            if not unknown and not (type(value) in (int, float) and math.isfinite(value)):
                raise FedmapError(f"{path} is damaged: {name!r} of a record is {value!r}")
    return records


def refuse_different_data(found: Sequence[Found]) -> None:
    """Accuracies on different data say nothing beside each other."""
    first = found[0].result
    for one in (other.result for other in found):
        if data_of(one) != data_of(first):
            same = data_of(one)[0] == data_of(first)[0]
            raise FedmapError(
                f"the runs are of different data: {first.settings.data} in {first.folder}, "
                f"{one.settings.data}{', which changed,' * same} in {one.folder}; give runs of one "
                "dataset"
            )


def data_of(result: Result) -> tuple[Any, ...]:
    """What makes accuracies comparable."""
    marks = read_federation(result.folder / "run.toml")
    changes = (marks.get(name) for name in ("samples", "content", "test_labels"))
    return result.settings.data, result.classes, *changes


def once(found: Iterable[Found]) -> list[Found]:
    """Of runs with the same settings the one that is the furthest."""
    furthest: dict[str, Found] = {}
    for one in found:
        name = one.result.settings.name
        if name not in furthest or progress(one) > progress(furthest[name]):
            furthest[name] = one
    return list(furthest.values())


def progress(one: Found) -> tuple[bool, int]:
    """How far a run is."""
    return one.state == DONE, len(one.result.rounds)


def labeled(found: Sequence[Found]) -> dict[str, list[Found]]:
    """Runs that differ only in their seeds, under the method's name with what tells it from
    others of the same name."""
    groups: dict[str, list[Found]] = {}
    for one in sorted(found, key=lambda one: one.result.settings.seed):
        groups.setdefault(json.dumps(flat(one.result.settings), sort_keys=True), []).append(one)
    settings = [group[0].result.settings for group in groups.values()]
    names = dict(zip(labels(settings), groups.values(), strict=True))
    order = sorted(names, key=lambda label: (label != ALONE, label.casefold()))
    return {label: names[label] for label in order}


def flat(settings: Settings) -> dict[str, Any]:
    """Every setting that changes numbers but the seeds; the method's parameters under their own
    names."""
    apart = {*NO_NUMBERS, "params", "seed", "partition_seed"}
    return settings.model_dump(mode="json", exclude=apart) | settings.params


def labels(variants: Sequence[Settings]) -> list[str]:
    """A different name for each: the method, with parameters that are no defaults, and where
    several have the same one, what differs and is no default."""
    short = [_label(one, variants, only_chosen=True) for one in variants]
    full = [_label(one, variants, only_chosen=False) for one in variants]
    return [f if short.count(s) > 1 else s for s, f in zip(short, full, strict=True)]


def _label(one: Settings, variants: Sequence[Settings], only_chosen: bool) -> str:
    mine, same = flat(one), [flat(other) for other in variants if other.label == one.label]
    keys = {key: None for other in same for key in other}
    differ = {key: mine.get(key) for key in keys if any(o.get(key) != mine.get(key) for o in same)}
    if only_chosen:
        chosen = {k: v for k, v in differ.items() if k not in one.params and not _default(k, v)}
        differ = _with_preset(one, not_defaults(one.method, one.params)) | chosen
    words = ",".join(f"{key}={value}" for key, value in differ.items())
    return f"{one.label}[{words}]" if words else one.label


def _default(name: str, value: Any) -> bool:
    field = Settings.model_fields.get(name)
    return field is not None and value == field.default


def _with_preset(settings: Settings, chosen: dict[str, Any]) -> dict[str, Any]:
    """The name of a preset instead of all its values."""
    presets = METHODS[settings.method].presets if settings.method in METHODS else {}
    for name, values in presets.items():
        if values.items() <= chosen.items():
            rest = {key: value for key, value in chosen.items() if key not in values}
            return {"preset": name} | rest
    return chosen
