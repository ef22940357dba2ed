"""A run's folder: `run.toml`, `rounds.jsonl`, `final.json`, the models, `done`, and while it runs
the checkpoint.

A round counts once `checkpoint/commit.json` names it; that file is replaced atomically after all
the rest is written."""

import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedmap import values
from fedmap.errors import FedmapError
from fedmap.simulate.store import StateStore
from fedmap.simulate.system import lock
from fedmap.values import Values

Record = dict[str, Any]  # what is known of one round


def write_atomically(path: Path, content: bytes, lasting: bool = True, mode: int = 0o666) -> None:
    """Either the old file or the whole new one is there, also after a crash (of the machine too,
    where it is lasting)."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        if lasting:
            file.flush()
            os.fsync(file.fileno())
    os.replace(part, path)
    if lasting:
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Bring a folder's list of names to the disk."""
    if os.name == "nt":  # Windows opens no folders
        return
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class RunFolder:
    """The files of one run. One that is not `lasting` goes with its process, so it needs no
    checkpoints."""

    def __init__(self, path: Path, lasting: bool = True) -> None:
        self.path = path
        self.lasting = lasting
        self.checkpoint = path / "checkpoint"
        self.states = self.checkpoint / "states.bin" if lasting else None
        self._commit = self.checkpoint / "commit.json"
        self._rounds = path / "rounds.jsonl"
        self._written = 0  # bytes and checksum of rounds.jsonl up to the last whole round
        self._checksum = 0

    @classmethod
    def finished(cls, path: Path) -> "RunFolder":
        """The folder of a run that reached its end; any other is refused."""
        folder = cls(path)
        if not folder.begun:
            raise FedmapError(f"{path} is not a run folder: it has no run.toml")
        if not folder.done:
            raise FedmapError(
                f"the run in {path} is not finished; go on with: fedmap resume {path}"
            )
        return folder

    @property
    def done(self) -> bool:
        """Is the run finished?"""
        return (self.path / "done").exists()

    @property
    def begun(self) -> bool:
        """Has a run been started here?"""
        return (self.path / "run.toml").exists()

    @contextmanager
    def locked(self, keep_states: bool = False) -> Iterator[None]:
        """Only one process at a time works in the folder. The lock goes with the process, however
        it ends. The checkpoint of a run that is done goes, unless it is to be kept."""
        try:
            self.checkpoint.mkdir(parents=True, exist_ok=True)
        except OSError as wrong:
            raise FedmapError(f"cannot make the folder {self.path}: {wrong.strerror}") from None
        with open(self.checkpoint / "lock", "w") as file:
            try:
                lock(file)
            except OSError:
                raise FedmapError(
                    f"another process works in {self.path}; wait for it or choose another folder"
                ) from None
            yield
            if self.done and not keep_states:
                shutil.rmtree(self.checkpoint, ignore_errors=True)

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the run, whole or not at all."""
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        write_atomically(
            path, content.encode() if isinstance(content, str) else content, self.lasting
        )

    def commit(self, record: Record, server: Values, store: StateStore) -> None:
        """Make a round final: the clients' states are in the store already; then server state,
        record, and the commit."""
        number = record["round"]
        if not self.lasting:
            self._append(record)
            return
        store.sync()
        self._append(record)
        self._commit_to(number, values.save(server))
        (self.checkpoint / f"server-{number - 1}.safetensors").unlink(missing_ok=True)

    def _commit_to(self, number: int, server: bytes) -> None:
        """The server state of a round whose record is written, then the file that makes both
        count."""
        write_atomically(self.checkpoint / f"server-{number}.safetensors", server)
        commit = {
            "round": number,
            "server_crc": zlib.crc32(server),
            "rounds_bytes": self._written,
            "rounds_crc": self._checksum,
        }
        write_atomically(self._commit, json.dumps(commit).encode())

    def reopen(self) -> None:
        """Take the end of a finished run back, for more rounds: its last round is the last commit,
        and its results stand until there are new ones."""
        if not self._commit.exists():
            content = self._rounds.read_bytes()
            self._written, self._checksum = len(content), zlib.crc32(content)
            state = values.save(values.load(self.path / "server.safetensors"))
            self._commit_to(len(content.splitlines()), state)
        (self.path / "done").unlink()

    def _append(self, record: Record) -> None:
        """A line more in rounds.jsonl, after the last whole round."""
        line = (json.dumps(record) + "\n").encode()
        with open(self._rounds, "r+b" if self._rounds.exists() else "w+b") as rounds:
            rounds.truncate(self._written)
            rounds.seek(self._written)
            rounds.write(line)
            rounds.flush()
            if self.lasting:
                os.fsync(rounds.fileno())
        self._written += len(line)
        self._checksum = zlib.crc32(line, self._checksum)

    def records(self) -> list[Record]:
        """The records of all whole rounds of a finished run."""
        return [json.loads(line) for line in self._rounds.read_text().splitlines()]

    def restore(self, store: StateStore) -> tuple[list[Record], Values | None]:
        """The records and the server state of the last whole round; the store is brought back to
        it. (No round: [], None.)"""
        if not self.lasting:
            return [], None
        if not self._commit.exists():
            store.forget_after(0)
            return [], None
        commit = json.loads(self._commit.read_text())
        content = self._rounds.read_bytes()[: commit["rounds_bytes"]]
        server = self.checkpoint / f"server-{commit['round']}.safetensors"
        for path, crc, wanted in (
            (self._rounds, zlib.crc32(content), commit["rounds_crc"]),
            (
                server,
                zlib.crc32(server.read_bytes()) if server.exists() else None,
                commit["server_crc"],
            ),
        ):
            if crc != wanted:
                raise FedmapError(
                    f"{path} is damaged: its checksum differs from the one of round "
                    f"{commit['round']}; the run cannot go on"
                )
        self._written, self._checksum = len(content), commit["rounds_crc"]
        records = [json.loads(line) for line in content.splitlines()]
        store.forget_after(commit["round"])
        last = {
            client["client"]: record["round"] for record in records for client in record["clients"]
        }
        for client, round in last.items():
            store.check(client, round)
        return records, values.load(server)
