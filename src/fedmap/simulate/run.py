"""The round loop: select, train, aggregate, evaluate, record. Everything else of a run is called
from here."""

import contextlib
import json
import platform
import time
import tomllib
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import Method, Server, Upload, Values, find_method, tensor
from fedmap.nets import build
from fedmap.random import generator
from fedmap.simulate.engines.fork import Engine, InProcess, Pool
from fedmap.simulate.folder import RunFolder
from fedmap.simulate.memory import nbytes
from fedmap.simulate.result import Record, Result, method_net, per_class, summary, to_file
from fedmap.simulate.settings import NO_NUMBERS, Settings, read_toml, to_toml
from fedmap.simulate.store import StateStore
from fedmap.simulate.tasks import PART, Reply, Workshop
from fedmap.vector import Bench, Model

OnRound = Callable[[Record], None]


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
    seed, workers, params and so on. With `out` the run is kept in that folder and can be resumed;
    without it nothing is written."""
    made = Settings.of(
        {"data": federation.dataset.name} | federation.made_by | given | {"method": method}
    )
    return Run(made, federation, Path(out) if out is not None else None).go(resume, on_round)


class Run:
    """One method on one federation with one seed."""

    def __init__(self, settings: Settings, federation: Federation, out: Path | None = None) -> None:
        self.settings = settings.resolved(federation)
        self.federation = federation
        self.method: Method = find_method(settings.method)(**settings.params)
        self.build = partial(
            build,
            self.settings.net or "",
            federation.dataset.shape,
            federation.classes,
            settings.seed,
        )
        self.bench = Bench(self.build)
        self.initial = Model(self.build())
        self.folder = RunFolder(out) if out is not None else None
        drawn = generator(settings.seed, "public").permutation(len(federation.test_y))[
            : self.method.public_samples
        ]
        # samples of the global test set that the server half may see
        self.public = torch.from_numpy(drawn).sort().values

    def go(self, resume: bool = False, on_round: OnRound = lambda record: None) -> Result:
        """Carry the run out, or on, to its end."""
        folder = self.folder
        if folder is None:
            return self._rounds(on_round)
        if folder.begun:
            self._refuse_another_run(folder)
            if folder.done:
                return Result.read(folder.path)
            if not resume:
                raise FedmapError(
                    f"{folder.path} holds a run that is not finished; go on with: fedmap resume "
                    f"{folder.path}"
                )
        with folder.locked():
            try:
                folder.write("run.toml", to_toml(self._description()) + "\n")
                self._rounds(on_round)
            except OSError as wrong:
                where = wrong.filename or folder.path
                raise FedmapError(
                    f"cannot write {where}: {wrong.strerror}; whole rounds are kept, go on with: "
                    f"fedmap resume {folder.path}"
                ) from wrong
        return Result.read(folder.path)

    def _rounds(self, on_round: OnRound) -> Result:
        method, folder = self.method, self.folder
        store = StateStore(
            method.client_state(self.initial),
            len(self.federation),
            folder.states if folder else None,
        )
        records, state = folder.restore(store) if folder else ([], None)
        state = method.start(self.initial) if state is None else state
        with one_thread(), self._engine(store) as engine:
            for round in range(len(records) + 1, self.settings.rounds + 1):
                began = time.perf_counter()
                down = method.download(state)
                replies = engine.map("train", round, self.select(round), down)
                state = method.aggregate(self._server(round), state, self._uploads(replies))
                record = self._record(round, replies, down)
                record |= self._global_accuracy(self._correct(engine, state))
                record["seconds"] = time.perf_counter() - began
                if folder:
                    folder.commit(record, state, store)
                records.append(record)
                on_round(record)
            final = self._finish(engine, records, state)
        return self._result(store, records, state, final)

    @contextlib.contextmanager
    def _engine(self, store: StateStore) -> Iterator[Engine]:
        workshop = Workshop(
            self.federation, self.method, self.settings, self.settings.seed, self.bench, store
        )
        engine: Engine = (
            InProcess(workshop)
            if self.settings.workers == 1
            else Pool(workshop, self.settings.workers)
        )
        try:
            yield engine
        finally:
            engine.close()

    def select(self, round: int) -> list[int]:
        """S_t: max(Q K, 1) different clients, in the order of their numbers."""
        rng = generator(self.settings.seed, "select", round)
        return sorted(
            rng.choice(len(self.federation), self._clients_a_round, replace=False).tolist()
        )

    @property
    def _clients_a_round(self) -> int:
        return max(int(self.settings.fraction * len(self.federation) + 1e-9), 1)

    def _server(self, round: int) -> Server:
        self.bench.clear()
        public = self.federation.dataset.normalize(self.federation.test_x[self.public])
        rng = generator(self.settings.seed, "server", round)
        return Server(round, len(self.federation), self.settings, self.bench.model, public, rng)

    def _uploads(self, replies: list[Reply]) -> list[Upload]:
        by_samples = self.settings.server_weights == "samples"
        weights = [reply.numbers["samples"] if by_samples else 1.0 for reply in replies]
        return [
            Upload(reply.key, weight / sum(weights), reply.up)
            for reply, weight in zip(replies, weights, strict=True)
        ]

    def _record(self, round: int, replies: list[Reply], down: Values) -> Record:
        def mean(name: str) -> float | None:
            values = [reply.numbers[name] for reply in replies if name in reply.numbers]
            return sum(values) / len(values) if values else None

        return {
            "round": round,
            "global_accuracy": None,
            "personal_accuracy": mean("accuracy"),
            "personal_accuracy_download": mean("accuracy_download"),
            "train_loss": mean("loss"),
            "seconds": 0.0,
            "bytes_down": nbytes(down) * len(replies),
            "bytes_up": sum(nbytes(reply.up) for reply in replies),
            "clients": [
                {
                    "client": reply.key,
                    "accuracy": reply.numbers["accuracy"],
                    "accuracy_download": reply.numbers.get("accuracy_download"),
                }
                for reply in replies
            ],
        }

    def _correct(self, engine: Engine, state: Values) -> Tensor | None:
        """Which samples of the global test set does the global model classify rightly? None where
        there is no global model."""
        model = self.method.global_model(state)
        if model is None:
            return None
        parts = range(-(-len(self.federation.test_y) // PART))
        replies = engine.map("evaluate", self.settings.rounds, parts, {"model": model})
        return torch.cat([tensor(reply.result, "correct") for reply in replies])

    def _global_accuracy(self, correct: Tensor | None) -> Record:
        """On the whole global test set and, where the server half saw some of it, on the rest."""
        if correct is None:
            return {"global_accuracy": None}
        accuracy: Record = {"global_accuracy": int(correct.sum()) / len(correct)}
        if len(self.public):
            unseen = torch.ones(len(correct), dtype=torch.bool).index_fill(0, self.public, False)
            rest = int(unseen.sum())
            accuracy["global_accuracy_unseen"] = int(correct[unseen].sum()) / rest if rest else None
        return accuracy

    def _finish(self, engine: Engine, records: list[Record], state: Values) -> Record:
        """After the last round: every client's personal model is made and tested, and all is
        written."""
        down, clients, step = (
            self.method.download(state),
            range(len(self.federation)),
            self._clients_a_round,
        )
        accuracies: list[float] = []
        # as many at a time as in a round, so that memory does not grow with the federation
        for first in clients[::step]:
            for reply in engine.map(
                "personal", self.settings.rounds + 1, clients[first : first + step], down
            ):
                accuracies.append(reply.numbers["accuracy"])
                if self.folder:
                    self.folder.write(
                        f"personal/{reply.key:05d}.safetensors", to_file(self.initial, reply.result)
                    )
        final = summary(records) | {
            "personal_accuracy_all_clients": sum(accuracies) / len(accuracies),
            "global_accuracy_per_class": per_class(
                self._correct(engine, state),
                self.federation.test_y,
                self.federation.dataset.classes,
            ),
            "personal_accuracy_per_client": accuracies,
        }
        if self.folder:
            model = self.method.global_model(state)
            if model is not None:
                self.folder.write("global.safetensors", to_file(self.initial, {"model": model}))
            self.folder.write("final.json", json.dumps(final, indent=1) + "\n")
            self.folder.write("done", "")
        return final

    def _result(
        self, store: StateStore, records: list[Record], state: Values, final: Record
    ) -> Result:
        """The result in memory: models are made when they are asked for."""
        model = self.method.global_model(state)

        def personal_model(client: int) -> Any:
            with one_thread():
                workshop = Workshop(
                    self.federation,
                    self.method,
                    self.settings,
                    self.settings.seed,
                    self.bench,
                    store,
                )
                personal = workshop.do(
                    "personal", self.settings.rounds + 1, client, self.method.download(state)
                ).result
            return self.method.predictor(Bench(self.build), personal)

        return Result(
            self.settings, records, final, None,
            lambda: None if model is None else method_net(Bench(self.build), {"model": model}),
            personal_model,
        )  # fmt: skip

    def _description(self) -> dict[str, Any]:
        """run.toml: every setting, and what the numbers also depend on."""
        dataset = self.federation.dataset
        about = {
            "shape": list(dataset.shape),
            "classes": list(dataset.classes),
            "fingerprint": fingerprint(self.federation),
        }
        versions = {name: version(name) for name in ("fedmap", "torch", "numpy")} | {
            "python": platform.python_version()
        }
        return self.settings.model_dump() | {"federation": about, "versions": versions}

    def _refuse_another_run(self, folder: RunFolder) -> None:
        path = folder.path / "run.toml"
        theirs = Settings.of(read_toml(path)).model_dump(exclude=NO_NUMBERS)
        for name, ours in self.settings.model_dump(exclude=NO_NUMBERS).items():
            if ours != theirs[name]:
                raise FedmapError(
                    f"{folder.path} holds another run: its {name} is {theirs[name]!r}, not "
                    f"{ours!r}; choose another folder"
                )
        if tomllib.loads(path.read_text())["federation"]["fingerprint"] != fingerprint(
            self.federation
        ):
            raise FedmapError(
                f"{folder.path} holds a run on another federation: samples or clients differ; "
                "choose another folder"
            )


def fingerprint(federation: Federation) -> int:
    """A checksum of who holds which labels, to tell another federation by."""
    held = [federation.dataset.train_y[index] for index in (*federation.train, *federation.test)]
    return zlib.crc32(torch.cat([*held, *federation.train, *federation.test]).numpy().tobytes())


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Sums must not depend on how many threads share them; small nets are faster with one thread
    anyway."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
