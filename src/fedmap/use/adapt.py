"""A personal model for a client that never took part: the final download of a run, personalized by
the method's own rule on the newcomer's samples, which stay where they are."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from fedmap import kernels, own_code, values
from fedmap.data import load
from fedmap.data.dataset import Dataset
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
) -> Adapted:
    """Make a newcomer's personal model from a finished run. What is drawn comes from the run's seed
    and the number after the last client's. `method` and `net` are the run's own, where they are
    the user's; with `trust`, the files that the run names are run."""
    folder = RunFolder.finished(run)
    kept = folder.path / "server.safetensors"
    if not kept.exists():
        raise FedmapError(
            f"the run in {run} has no server.safetensors, from which a newcomer would begin: "
            "it was made by an older fedmap"
        )
    folder.intact(kept.name)
    settings = _settings(folder, {"method": method, "net": net}, trust)
    setup, number = _setup(folder, settings, Notes.read(kept), load(data, data_dir))
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
        out / "personal.safetensors",
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
