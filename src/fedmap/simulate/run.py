"""A run from its beginning, or from where it was stopped, to its end: rounds, records, models."""

import json
import os
import platform
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedmap import values
from fedmap.errors import FedmapError
from fedmap.federation import AnyFederation, Federation
from fedmap.simulate.engines import ENGINES, Engine
from fedmap.simulate.folder import Record, RunFolder
from fedmap.simulate.privacy import epsilon, require_accountant
from fedmap.simulate.result import (
    Result,
    model_notes,
    named_values,
    per_class,
    personal_files,
    summary,
)
from fedmap.simulate.round import evaluated, play_round, record_of
from fedmap.simulate.settings import NO_NUMBERS, Settings, read_federation, read_toml, to_toml
from fedmap.simulate.store import FileStore, StateStore
from fedmap.simulate.tasks import Setup, only_tensors
from fedmap.values import Values

OnRound = Callable[[Record], None]
StartEngine = Callable[[Setup, StateStore], Engine]


def run(
    method: str,
    federation: Federation,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    on_round: OnRound = lambda record: None,
    **given: Any,
) -> Result:
    """Train with a method (a name of `fedmap methods`, or `file.py:Class`) on a federation.

    Keyword arguments are the settings of `fedmap run --help`: net, rounds, fraction, epochs, lr,
    seed, workers, params and so on. With `out` the run is kept in that folder and can be resumed,
    also for more rounds than before; without it the folder goes with the result."""
    known = {"data": federation.dataset.name} | federation.origin
    settings = Settings.of(known | given | {"method": method}, federation.dataset.defaults)
    return Run(settings, federation, Path(out) if out is not None else None).go(resume, on_round)


class Run:
    """One method on one federation with one seed, in a folder. Where the clients' states are kept
    and what runs the clients can be the caller's choice: `store` is by default a file in the
    folder, and `start_engine` starts what the settings ask for."""

    def __init__(
        self,
        settings: Settings,
        federation: AnyFederation,
        out: Path | None = None,
        store: StateStore | None = None,
        start_engine: StartEngine | None = None,
    ) -> None:
        self.setup = Setup(settings, federation)
        self.settings = self.setup.settings
        if self.settings.dp_noise is not None:
            require_accountant()
        self.federation = federation
        self.out = out
        self.store = store
        self.start_engine = start_engine or chosen_engine

    def go(self, resume: bool = False, on_round: OnRound = lambda record: None) -> Result:
        """Carry the run out, or on, to its end."""
        if self.out is None:
            return self._go_in_a_temporary_folder(on_round)
        folder = RunFolder(self.out)
        if folder.begun:
            more = self._refuse_another_run(folder, more=resume)
            if folder.done and not more:
                return self._result(folder)
            if folder.done:
                self._refuse_lost_states(folder)
            elif not resume:
                raise FedmapError(
                    f"{folder.path} holds a run that is not finished; "
                    f"go on with: fedmap resume {folder.path}"
                )
        with folder.locked(self.settings.keep_states):
            try:
                if folder.done:
                    folder.reopen()
                self._carry_out(folder, on_round)
            except OSError as wrong:
                raise FedmapError(
                    f"cannot write {wrong.filename or folder.path}: {wrong.strerror}; "
                    f"whole rounds are kept, go on with: fedmap resume {folder.path}"
                ) from wrong
        return self._result(folder)

    def _go_in_a_temporary_folder(self, on_round: OnRound) -> Result:
        path = Path(tempfile.mkdtemp(prefix="fedmap-"))
        try:
            self._carry_out(RunFolder(path, lasting=False), on_round)
            result = self._result(RunFolder(path))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        weakref.finalize(result, remove_own, path, os.getpid())
        return result

    def _result(self, folder: RunFolder) -> Result:
        return Result.read(folder.path, self.setup.method)

    def _carry_out(self, folder: RunFolder, on_round: OnRound) -> None:
        """The rounds that are left, one after the other, and what is made of the last one."""
        folder.write("run.toml", to_toml(self._description()) + "\n")
        setup, store = self.setup, self.store or self._new_store(folder)
        records, state = folder.restore(store)
        state = setup.method.start(setup.initial) if state is None else state
        tally: Values | None = None
        with setup.in_force(), closing(self.start_engine(setup, store)) as engine:
            for round in range(len(records) + 1, self.settings.rounds + 1):
                began = time.perf_counter()
                played = play_round(setup, engine, round, state)
                state, tally = played.state, played.tally
                for client in played.left_out:
                    store.drop(client, round)
                record = record_of(played) | {"seconds": time.perf_counter() - began}
                record |= privacy_of(setup, [*records, record])
                folder.commit(record, state, store)
                records.append(record)
                on_round(record)
            if tally is None:
                tally = evaluated(setup, engine, self.settings.rounds, state)
            self._finish(folder, engine, records, state, tally)

    def _new_store(self, folder: RunFolder) -> StateStore:
        initial = self.setup.method.client_state(self.setup.initial)
        only_tensors(initial, self.setup.method.name())
        return FileStore(initial, len(self.federation), folder.states)

    def _finish(
        self,
        folder: RunFolder,
        engine: Engine,
        records: list[Record],
        state: Values,
        tally: Values | None,
    ) -> None:
        """After the last round: every client's personal model is made and tested, and all is
        written."""
        setup, after = self.setup, self.settings.rounds + 1
        down, clients = setup.method.download(state), range(len(self.federation))
        accuracies: list[float | None] = []
        files = personal_files(self.federation.marks.get("clients", []), len(clients))
        # As many at a time as in a round, so that memory does not grow with the federation.
        for first in clients[:: setup.clients_per_round]:
            some = clients[first : first + setup.clients_per_round]
            for reply in engine.map("personal", after, some, down):
                accuracies.append(reply.numbers.get("accuracy"))
                if reply.result:  # else it stays where it is
                    entries = named_values(setup.initial, reply.result)
                    notes = model_notes(setup, self.federation.client(reply.key))
                    content = values.save(entries, notes)
                    folder.write(files[reply.key], content)
        model = setup.method.global_model(state)
        if model is not None:
            entries = named_values(setup.initial, {"model": model})
            content = values.save(entries, model_notes(setup))
            folder.write("global.safetensors", content)
        # What a newcomer would download, see `fedmap adapt`.
        folder.write("server.safetensors", values.save(state, model_notes(setup)))
        known = [accuracy for accuracy in accuracies if accuracy is not None]
        final = summary(records) | {
            "personal_accuracy_all_clients": sum(known) / len(known) if known else None,
            "global_accuracy_per_class": per_class(tally, self.federation.dataset.classes),
            "personal_accuracy_per_client": accuracies,
            "client_names": list(self.federation.client_names),
        }
        folder.write("final.json", json.dumps(final, indent=1) + "\n")
        folder.write("done", "")

    def _description(self) -> dict[str, Any]:
        """run.toml: every setting, and what the numbers also depend on."""
        versions = {name: version(name) for name in ("fedmap", "torch", "numpy")}
        versions["python"] = platform.python_version()
        return self.settings.model_dump() | {
            "federation": about(self.federation),
            "versions": versions,
        }

    def _refuse_lost_states(self, folder: RunFolder) -> None:
        """A finished run goes on only where its clients have no state or theirs was kept."""
        private = self.store is None and self.setup.method.client_state(self.setup.initial)
        needed = [folder.path / "server.safetensors", *([folder.states] if private else [])]
        if not all(file and file.exists() for file in needed):
            raise FedmapError(
                f"the run in {folder.path} is finished, and its clients' states were not kept, so "
                "it cannot go on; a run with --keep-states (keep_states=True) keeps them"
            )

    def _refuse_another_run(self, folder: RunFolder, more: bool) -> bool:
        """Is it the same run with more rounds, where that is allowed? All else is refused."""
        path = folder.path / "run.toml"
        kept = Settings.of(read_toml(path)).model_dump(exclude=NO_NUMBERS)
        more = more and self.settings.rounds > kept["rounds"]
        if more:
            kept["rounds"] = self.settings.rounds
        for name, value in self.settings.model_dump(exclude=NO_NUMBERS).items():
            if value != kept[name]:
                raise FedmapError(
                    f"{folder.path} holds another run: its {name} is {kept[name]!r}, "
                    f"not {value!r}; choose another folder"
                )
        differs = difference(read_federation(path), self.federation)
        if differs:
            raise FedmapError(
                f"{folder.path} holds a run on another federation: {differs}; choose another folder"
            )
        return more


def privacy_of(setup: Setup, records: list[Record]) -> Record:
    """What all rounds so far give away of a client, where the run is private. Who is online at a
    real site's federation is no secret, so only a simulation's clients are drawn in secret."""
    noise, settings = setup.settings.dp_noise, setup.settings
    if noise is None:
        return {}
    counted = [len(record["clients"]) for record in records]
    clients, drawn = len(setup.federation), settings.data != "sites"
    spent = epsilon(noise, settings.dp_delta, clients, setup.clients_per_round, counted, drawn)
    return {"epsilon": spent}


def about(federation: AnyFederation) -> dict[str, Any]:
    """What run.toml says of a federation."""
    dataset = federation.dataset
    return {"shape": list(dataset.shape), "classes": list(dataset.classes)} | federation.marks


# What changed where an entry of `about` does.
DIFFERENCES = {
    "shape": "the shape of a sample",
    "classes": "the classes",
    "clients": "the clients",
    "samples": "the number of samples",
    "fingerprint": "who holds which samples",
    "content": "the values of the samples",
}


def difference(kept: dict[str, Any], federation: AnyFederation) -> str:
    """What is not as `about` has described it; nothing where all is."""
    found = about(federation)
    for name, what in DIFFERENCES.items():
        if name in kept and kept[name] != found.get(name):
            entries = changed(kept[name], found[name]) if name in ("classes", "clients") else ""
            numbers = f" ({kept[name]} then, {found[name]} now)"
            shown = entries or (numbers if name in ("shape", "samples") else "")
            return f"{what} changed{shown}"
    return ""


def changed(before: list[str], now: list[str]) -> str:
    """Which names are not in both lists."""
    gone, new = ([name for name in a if name not in b] for a, b in ((before, now), (now, before)))
    parts = [f"{what}: {', '.join(names)}" for what, names in (("gone", gone), ("new", new))]
    return f" ({'; '.join(part for part in parts if not part.endswith(': '))})"


def chosen_engine(setup: Setup, store: StateStore) -> Engine:
    """The engine that the settings ask for."""
    return ENGINES[setup.settings.engine_name](setup, store)


def remove_own(path: Path, process: int) -> None:
    """Remove a temporary folder, if it is this process that made it and not a forked child."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
