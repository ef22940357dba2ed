"""What a run's models and data say of missing classes: who holds what, and how the proxies (the
classifier's rows) of classes that a client lacks stand to those that it has."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedmap import own_code, values
from fedmap.errors import FedmapError
from fedmap.simulate.result import Result
from fedmap.simulate.same import difference
from fedmap.simulate.settings import FEDERATION, Settings, read_federation

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
MOST_MODELS = 100  # clients whose models are looked at
PROXIES = "classifier.weight"  # a row for each class


class Proxies(NamedTuple):
    """The proxies of one run's final models: (clients, classes), and of the global model."""

    observed: Flags  # does the client have the class?
    norms: Floats
    drift: Floats | None  # distance to the global model's proxy, in units of its norm
    global_norms: Floats | None


def proxies(run: Result) -> Proxies | None:
    """From at most a hundred clients' own models; None where there are none to be read."""
    done = run.folder / "done"
    stamp = done.stat().st_mtime_ns if done.exists() else 0
    return _proxies(run.folder, tuple(some_files(run)), len(run.classes), stamp)


@lru_cache(maxsize=256)  # for a served page, which is made again and again
def _proxies(folder: Path, files: tuple[Path, ...], classes: int, stamp: int) -> Proxies | None:
    shared = rows_of(folder / "global.safetensors")
    found = [(rows_of(file), observed_of(file, classes)) for file in files]
    known = [(rows, seen) for rows, seen in found if rows is not None and seen is not None]
    if not known:
        return None
    own, seen = np.stack([rows for rows, _ in known]), np.stack([seen for _, seen in known])
    norms = np.linalg.norm(own, axis=2)
    if shared is None or shared.shape != own.shape[1:]:
        return Proxies(seen, norms, None, None)
    lengths = np.linalg.norm(shared, axis=1)
    away = np.linalg.norm(own - shared, axis=2) / np.maximum(lengths, 1e-12)
    return Proxies(seen, norms, away, lengths)


def some_files(run: Result) -> list[Path]:
    """The files of at most a hundred clients, from all over."""
    files = run.personal_files
    step = -(-len(files) // MOST_MODELS)
    return files[:: max(step, 1)]


def rows_of(file: Path) -> Floats | None:
    """The classifier's rows in a model's file; None where it cannot be read or has none."""
    try:
        rows: Floats = values.Stored(file)[PROXIES].to(torch.float64).numpy()
    except Exception:  # a damaged file can raise anything
        return None
    return rows


def observed_of(file: Path, classes: int) -> Flags | None:
    """For each class: has the client of this model seen it? None where the file does not say."""
    try:
        seen = json.loads(values.load_notes(file)["fedmap"])["observed"]
        flags = np.zeros(classes, bool)
        flags[seen] = True
    except Exception:  # as above
        return None
    return flags if seen is not None else None


class Holdings(NamedTuple):
    """Who holds what: (clients, classes)."""

    held: NDArray[np.int64]
    counted: bool  # are these numbers of training samples? else 1 says that a class is there


def holdings(run: Result) -> Holdings | None:
    """From the data, if it is here and is what the run had; else what the models' files say."""
    counts = counts_of(run)
    if counts is not None:
        return Holdings(counts, counted=True)
    some = run.personal_files[:MOST_MODELS]
    flags = [observed_of(file, len(run.classes)) for file in some]
    known = [flag for flag in flags if flag is not None]
    return Holdings(np.stack(known).astype(np.int64), False) if known else None


def counts_of(run: Result) -> NDArray[np.int64] | None:
    """Training samples by client and class. Code of the user's own is not run for it."""
    settings = run.settings
    if any(own_code.is_code(name) for name in (settings.data, settings.partition)):
        return None
    kept = json.dumps(read_federation(run.folder / "run.toml"))
    return _counts(settings.model_dump_json(include=FEDERATION), kept)


@lru_cache(maxsize=4)
def _counts(settings: str, kept: str) -> NDArray[np.int64] | None:
    try:
        federation = Settings.model_validate_json(settings).federation()
        same = not difference(json.loads(kept), federation)
    except (FedmapError, OSError):  # the data is not here, or was given in Python
        return None
    counts: NDArray[np.int64] = federation.counts.numpy()
    return counts if same else None


def means_where(of: Floats, where: Flags) -> list[float | None]:
    """For each class the mean over the clients that are marked; None where there is none."""
    return [
        float(column[marked].mean()) if marked.any() else None
        for column, marked in zip(of.T, where.T, strict=True)
    ]


def mean_where(of: Floats, where: Flags) -> float | None:
    """The mean over all clients and classes that are marked."""
    return float(of[where].mean()) if where.any() else None


def of_classes(found: Proxies) -> list[dict[str, Any]]:
    """For each class: lengths of its proxies, and how far they moved, at clients that have it and
    that miss it."""
    kinds = {"observed": found.observed, "missing": ~found.observed}
    columns: dict[str, list[float | None]] = {}
    for kind, where in kinds.items():
        columns[f"norm_{kind}"] = means_where(found.norms, where)
        columns[f"clients_{kind}"] = [float(count) for count in where.sum(0)]
        if found.drift is not None:
            columns[f"drift_{kind}"] = means_where(found.drift, where)
    if found.global_norms is not None:
        columns["norm_global"] = found.global_norms.tolist()
    return [dict(zip(columns, line, strict=True)) for line in zip(*columns.values(), strict=True)]
