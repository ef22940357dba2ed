"""A personal model for a client that never took part: the final download of a run, personalized by
the method's own rule on the newcomer's samples, which stay where they are."""

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from fedmap import kernels, own_code, values
from fedmap.data import load
from fedmap.data.dataset import Dataset
from fedmap.data.registry import FORMATS
from fedmap.errors import FedmapError
from fedmap.federation import ClientData
from fedmap.flower.sites import Sites
from fedmap.flower.terms import Terms, fit
from fedmap.methods import AnyMethod
from fedmap.nets import AnyNet
from fedmap.simulate.folder import RunFolder
from fedmap.simulate.result import model_notes, named_values
from fedmap.simulate.settings import Settings, described
from fedmap.simulate.tasks import Setup, do
from fedmap.use.files import write
from fedmap.use.model import Notes

NEWCOMER = "the newcomer"


class Adapted(NamedTuple):
    """The newcomer's model, and how good it and the global one are on the newcomer's own test
    samples."""

    file: Path
    global_accuracy: float | None  # None where the method has no global model
    personal_accuracy: float
    training_samples: int
    test_samples: int


def adapt(
    run: Path,
    data: str,
    out: Path,
    data_dir: Path | None = None,
    *,
    method: str | type[AnyMethod] | None = None,
    net: AnyNet | None = None,
    trust: bool = False,
    **reader: Any,
) -> Adapted:
    """Make a newcomer's personal model from a finished run. What is drawn comes from the run's seed
    and the number after the last client's. `method` and `net` are the run's own, where they are
    the user's; with `trust`, the files that the run names are run. A table is read as the run's
    were, where `reader` (`label_column`, `categories`) does not say otherwise."""
    file = out / "personal.safetensors"
    if file.exists():
        raise FedmapError(f"{out} has a newcomer's model already; choose another folder")
    folder = RunFolder.finished(run)
    kept = folder.path / "server.safetensors"
    if not kept.exists():
        raise FedmapError(
            f"the run in {run} has no server.safetensors, from which a newcomer would begin: "
            "it was made by an older fedmap"
        )
    folder.intact(kept.name)
    settings = _settings(folder, {"method": method, "net": net}, trust)
    notes = Notes.read(kept)
    dataset = load(data, data_dir, **reading(data, settings) | reader)
    setup, number = _setup(folder, settings, notes, with_features(dataset, notes.features))
    state, round = values.load(kept), setup.settings.rounds + 1
    own, model = setup.federation.client(number), setup.method.global_model(state)
    with setup.in_force():
        initial = setup.method.client_state(setup.initial)
        reply = do(setup, "personal", round, number, setup.method.download(state), initial)
        entries = named_values(setup.initial, reply.result)
        content = values.save(entries, model_notes(setup, own))
        asked = None if model is None else setup.models.model(model)
        of_all = None if asked is None else setup.client(number, round).accuracy(asked)
    adapted = Adapted(
        file,
        of_all,
        reply.numbers["accuracy"],
        len(own.train[1]),
        len(own.test[1]),
    )
    report = {name: value for name, value in adapted._asdict().items() if name != "file"}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise FedmapError(f"cannot make the folder {out}: {wrong.strerror}") from None
    write(adapted.file, content)
    write(out / "accuracy.json", json.dumps(report, indent=1) + "\n")
    return adapted


def _settings(folder: RunFolder, given: dict[str, Any], trust: bool) -> Settings:
    """The run's settings. Its data and partition are not looked at, so they may name any code."""
    file, named = folder.path / "run.toml", {n: one for n, one in given.items() if one is not None}
    found = described(file) | named
    needed = {name: found.get(name) for name in given}
    own_code.require_named(file, needed, named.values(), trust)
    return Settings.of(found)


def reading(data: str, settings: Settings) -> dict[str, Any]:
    """How the run's own tables were read, as far as the newcomer's format takes it."""
    kind = data.partition(":")[0]
    known = inspect.signature(FORMATS[kind].load).parameters if kind in FORMATS else {}
    found = {name: getattr(settings, name) for name in ("label_column", "categories")}
    return {name: value for name, value in found.items() if value and name in known}


def with_features(dataset: Dataset, features: tuple[str, ...]) -> Dataset:
    """With the features in the model's order. A value of a column of categories that the newcomer
    never has, as `color=red`, is a feature of zeros."""
    there = {name: place for place, name in enumerate(dataset.features)}
    columns = {name.partition("=")[0] for name in there if "=" in name}
    known = all(name in there or name.partition("=")[0] in columns for name in features)
    if not there or not known or not there.keys() <= set(features):
        return dataset  # what differs is named when it is compared with the model's

    def ordered(x: Tensor) -> Tensor:
        wide = x.new_zeros(len(x), len(features))
        for place, name in enumerate(features):
            if name in there:
                wide[:, place] = x[:, there[name]]
        return wide

    x, test_x = ordered(dataset.train_x), ordered(dataset.test_x)
    return replace(dataset, train_x=x, test_x=test_x, features=features)


def _setup(
    folder: RunFolder, settings: Settings, notes: Notes, dataset: Dataset
) -> tuple[Setup, int]:
    """The run as its newcomer sees it, and the newcomer's number."""
    if dataset.owner is not None and int(dataset.owner.max()) > 0:
        raise FedmapError(
            f"{dataset.name} has {int(dataset.owner.max()) + 1} clients; a newcomer is one: give "
            "the data of one client"
        )
    number = len(folder.final()["personal_accuracy_per_client"])
    # The run's kernels and device are those of its machine; here there may be none.
    found = kernels.resolve("torch" if settings.kernels == "torch" else "auto")
    # A newcomer has nothing to choose: all of its training samples are trained on.
    here = {"kernels": found, "device": None, "validation": None}
    settings = settings.model_copy(update=here)
    terms = Terms(
        classes=notes.classes,
        shape=notes.shape,
        kind="uint8" if notes.pixels else "float32",
        mean=notes.mean,
        std=notes.std,
        features=notes.features,
        kernels=found,
    )
    own = ClientData.of(fit(dataset, terms, NEWCOMER), number, settings.partition_seed or 0)
    names = [*(f"client {k}" for k in range(number)), NEWCOMER]
    return Setup(settings, Sites(terms, names, {number: own}, server_has_test=True)), number
