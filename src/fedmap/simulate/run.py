"""A run from its beginning, or from where it was stopped, to its end: rounds, records, models."""

import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmap import devices, own_code, scores, values
from fedmap.errors import DivergenceError, FedmapError
from fedmap.federation import AnyFederation, Federation
from fedmap.methods import AnyMethod
from fedmap.notebook import progress_bar
from fedmap.simulate.callbacks import Callback, Start, Told
from fedmap.simulate.choose import best_round, enough
from fedmap.simulate.engines import ENGINES, Engine
from fedmap.simulate.engines.spawn import refuse_within_a_start
from fedmap.simulate.folder import Record, RunFolder, resume_command, write_atomically
from fedmap.simulate.lock import busy, held
from fedmap.simulate.privacy import epsilon, require_accountant
from fedmap.simulate.progress import by_round, say_early_end
from fedmap.simulate.result import (
    Result,
    compact,
    model_notes,
    named_values,
    personal_files,
    summary,
)
from fedmap.simulate.round import evaluated, play_round, record_of
from fedmap.simulate.same import about, machine, refuse_another_machine, refuse_another_run
from fedmap.simulate.settings import Settings, to_toml
from fedmap.simulate.store import FileStore, StateStore
from fedmap.simulate.tasks import Reply, Setup, only_tensors
from fedmap.values import Values

OnRound = Callable[[Record], None]
StartEngine = Callable[[Setup, StateStore], Engine]


def run(
    method: str | type[AnyMethod],
    federation: Federation,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    anyway: bool = False,
    on_round: OnRound = lambda record: None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    **given: Any,
) -> Result:
    """Train with a method (a name of `fedmap methods`, FILE.py:CLASS, or a class) on a federation.

    Keyword arguments are the settings of `fedmap run --help`: net, rounds, fraction, epochs, lr,
    seed, workers, params and so on. The net may also be a module, which starts from its own
    weights, or a function (shape, classes) -> module.

    With `out` the run is kept in that folder and can be resumed, also for more rounds than before;
    without it the folder goes with the result. A run that was begun with other versions or on
    another processor goes on only with `anyway`. `progress` shows a bar; where it is not given, a
    notebook has one. `callbacks` are told of the run as it goes on, and never change it: those of
    fedmap.track, or subclasses of fedmap.Callback. `on_round` can end it, by an error."""
    if not hasattr(federation, "origin"):
        raise FedmapError(
            f"federation is {federation!r}; give fedmap.partition(fedmap.load('fashion-mini')) or "
            "fedmap.Federation.from_arrays(...)"
        )
    known = {"data": federation.dataset.name} | federation.origin
    settings = Settings.of(known | given | {"method": method}, federation.dataset.defaults)
    with progress_bar(settings.label, settings.rounds, progress) as move:
        shown = by_round(move)

        def after(record: Record) -> None:
            shown(record)
            on_round(record)

        run = Run(settings, federation, None if out is None else Path(out))
        result = run.go(resume, after, anyway, callbacks)
        say_early_end(move, settings.rounds, len(result.rounds))
        return result


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

    def go(
        self,
        resume: bool = False,
        on_round: OnRound = lambda record: None,
        anyway: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Result:
        """Carry the run out, or on, to its end; `anyway` also where versions or the processor are
        not those that it was begun with."""
        refuse_within_a_start()
        with Told(callbacks) as told:

            def after(record: Record) -> None:
                told.round(record)
                on_round(record)

            result = self._gone(resume, after, anyway, told)
            told.end(result)
        return result

    def _gone(self, resume: bool, on_round: OnRound, anyway: bool, told: Told) -> Result:
        """The result, in the folder that was chosen or in a temporary one."""
        if self.out is None:
            return self._go_in_a_temporary_folder(on_round, told)
        folder = RunFolder(self.out)
        folder.refuse_foreign()
        if folder.begun:
            more = refuse_another_run(self.settings, self.federation, folder, more=resume)
            if folder.done and not more:
                result = self._result(folder)
                told.start(self._start(folder, result.rounds))
                return result
            if folder.done:
                self._refuse_lost_states(folder)
            elif not resume:
                if held(folder.checkpoint / "lock"):
                    raise busy(folder.path)
                raise FedmapError(
                    f"{folder.path} holds a run that is not finished; "
                    f"go on with: {resume_command(folder.path)}"
                )
            refuse_another_machine(folder, anyway)
        _ = self.setup.initial  # a net that does not fit the samples leaves no folder behind
        with folder.locked(self.settings.keep_states):
            try:
                if folder.done:
                    folder.reopen()
                diverged = folder.path / "diverged"
                diverged.unlink(missing_ok=True)
                self._carry_out(folder, on_round, told)
            except DivergenceError as sentence:
                write_atomically(diverged, f"{sentence}\n".encode())
                raise
            except OSError as wrong:
                raise FedmapError(
                    f"cannot write {wrong.filename or folder.path}: {wrong.strerror or wrong}; "
                    f"{folder.what_is_kept()}"
                ) from wrong
        return self._result(folder)

    def _go_in_a_temporary_folder(self, on_round: OnRound, told: Told) -> Result:
        path = Path(tempfile.mkdtemp(prefix="fedmap-"))
        try:
            self._carry_out(RunFolder(path, lasting=False), on_round, told)
            result = self._result(RunFolder(path))
        except BaseException:
            shutil.rmtree(path, ignore_errors=True)
            raise
        weakref.finalize(result, remove_own, path, os.getpid())
        return result

    def _result(self, folder: RunFolder) -> Result:
        settings = self.settings
        return Result.read(folder.path, method=settings.code["method"], net=settings.any_net)

    def _start(self, folder: RunFolder, records: list[Record]) -> Start:
        """What callbacks are told first."""
        kept = folder.path if folder.lasting else None
        return Start(self.settings, about(self.federation), kept, records)

    def _carry_out(self, folder: RunFolder, on_round: OnRound, told: Told) -> None:
        """The rounds that are left, one after the other, and what is made of the last one."""
        folder.describe(to_toml(self._description()))
        setup, store = self.setup, self.store or self._new_store(folder)
        records, state = folder.restore(store)
        state = setup.method.start(setup.initial) if state is None else state
        best = best_round(records)
        kept = state if best is None else folder.best(best)  # what the models are made of
        tally: Values | None = None
        with setup.in_force(), closing(self.start_engine(setup, store)) as engine:
            # workers are forked by now, so none has what a callback opens
            told.start(self._start(folder, records))
            for round in range(len(records) + 1, self.settings.rounds + 1):
                if enough(records, self.settings.patience):
                    break
                began = time.perf_counter()
                played = play_round(setup, engine, round, state)
                state = played.state
                for client in played.left_out:
                    store.drop(client, round)
                record = record_of(played) | {"seconds": time.perf_counter() - began}
                record |= privacy_of(setup, [*records, record])
                records.append(record)
                before, best = best, best_round(records)
                if best in (None, round):
                    kept, tally = state, played.tally
                if best == round:
                    folder.keep_best(round, state)
                folder.commit(record, state, store)
                if best is not None:
                    folder.forget_best(before, best)  # the one before may be gone back to
                on_round(record)
            if tally is None:
                tally = evaluated(setup, engine, self.settings.rounds, kept)
            self._finish(folder, engine, records, kept, tally)

    def _new_store(self, folder: RunFolder) -> StateStore:
        initial = self.setup.method.client_state(self.setup.initial)
        only_tensors(initial, self.setup.method.name())
        if self.setup.method.pooled and initial:
            raise FedmapError(
                f"method {self.setup.method.name()} pools all samples, so its clients train "
                "nothing and can keep no state; client_state must give none"
            )
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
        model = setup.method.global_model(state)
        tested: list[Reply] = []
        shared: list[float | None] = []  # the global model's accuracy at each client
        files = personal_files(self.federation.marks.get("clients", []), len(clients))
        # As many at a time as in a round, so that memory does not grow with the federation.
        for first in clients[:: setup.clients_per_round]:
            some = clients[first : first + setup.clients_per_round]
            for reply in engine.map("personal", after, some, down):
                tally_of_one = {name: counts.clone() for name, counts in reply.tally.items()}
                tested.append(Reply(reply.key, reply.numbers, tally=tally_of_one))
                if reply.result:  # else it stays where it is
                    entries = named_values(setup.initial, reply.result)
                    notes = model_notes(setup, setup.data(reply.key))
                    content = values.save(entries, notes)
                    folder.write(files[reply.key], content)
            shared += self._shared(engine, after, some, model)
        if model is not None:
            entries = named_values(setup.initial, {"model": model})
            content = values.save(entries, model_notes(setup))
            folder.write("global.safetensors", content)
        # What a newcomer would download, see `fedmap adapt`.
        folder.write("server.safetensors", values.save(state, model_notes(setup)))
        final = summary(records) | self._by_client(tested, shared) | self._by_class(tested, tally)
        folder.write("final.json", compact(final))
        folder.finish()

    def _shared(
        self, engine: Engine, round: int, clients: Sequence[int], model: Tensor | None
    ) -> list[float | None]:
        """The global model's accuracy on each client's own test samples, where it is known."""
        if model is None:
            return [None] * len(clients)
        replies = engine.map("own", round, clients, {"model": model})
        return [scores.accuracy(reply.tally) if reply.tally else None for reply in replies]

    def _by_client(self, tested: list[Reply], shared: list[float | None]) -> Record:
        """What final.json says of each client, in the order of `client_names`."""
        found: Record = {}
        for name in ("accuracy", "accuracy_observed"):
            every = [reply.numbers.get(name) for reply in tested]
            known = [value for value in every if value is not None]
            found[f"personal_{name}_all_clients"] = sum(known) / len(known) if known else None
            found[f"personal_{name}_per_client"] = every
        names = list(self.federation.client_names)
        return found | {"global_accuracy_per_client": shared, "client_names": names}

    def _by_class(self, tested: list[Reply], tally: Values | None) -> Record:
        """What final.json says of each class: of the global model, and of all personal models
        together, each on its own client's test samples."""
        classes = self.federation.dataset.classes
        whole = all(reply.tally for reply in tested)  # sites do not tell
        personal = scores.added([reply.tally for reply in tested]) if whole else None
        both = {"global": tally, "personal": personal}
        found: Record = {"classes": list(classes)}
        for prefix, counts in both.items():
            found |= scores.report(counts, classes, prefix)
        return found

    def _description(self) -> dict[str, Any]:
        """run.toml: every setting, and what the numbers also depend on."""
        known = {
            "device": devices.kind(self.settings.device) or "cpu",
            "code": own_code.checksums(self.settings.code),
            "federation": about(self.federation),
        }
        return self.settings.model_dump() | known | machine()

    def _refuse_lost_states(self, folder: RunFolder) -> None:
        """A finished run goes on only where its clients have no state or theirs was kept."""
        private = self.store is None and self.setup.method.client_state(self.setup.initial)
        needed = [folder.path / "server.safetensors", *([folder.states] if private else [])]
        if self.settings.validation:  # then server.safetensors is the best round's
            needed.append(folder.checkpoint / "commit.json")
        if not all(file and file.exists() for file in needed):
            raise FedmapError(
                f"the run in {folder.path} is finished, and its clients' states were not kept, so "
                "it cannot go on; a run with --keep-states (keep_states=True) keeps them"
            )


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


def chosen_engine(setup: Setup, store: StateStore) -> Engine:
    """The engine that the settings ask for."""
    return ENGINES[setup.settings.engine_name](setup, store)


def remove_own(path: Path, process: int) -> None:
    """Remove a temporary folder, if it is this process that made it and not a forked child."""
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
