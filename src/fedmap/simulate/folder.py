"""A run's folder: `run.toml`, `rounds.jsonl`, `final.json`, the models, `done`, and while it runs
the checkpoint.

A round counts once `checkpoint/commit.json` names it; that file is replaced atomically after all
the rest is written. The round before it is kept too, in `checkpoint/commit-before.json` and its
server state: it takes over where something of the last one is damaged."""

import json
import os
import shlex
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedmap import values
from fedmap.errors import FedmapError
from fedmap.simulate.files import linked, open_own
from fedmap.simulate.lock import locked
from fedmap.simulate.store import StateStore
from fedmap.values import Values

Record = dict[str, Any]  # what is known of one round
TRACK = "track"  # what trackers write; it is no part of the run
# What may lie in a folder before its run.toml: a start that was killed, a federation's list.
BEFORE = {"checkpoint", "run.toml.part", "sites.json", TRACK}


def resume_command(path: Path) -> str:
    """What a person types to go on with the run in a folder."""
    return f"fedmap resume {shlex.quote(str(path))}"


def write_atomically(path: Path, content: bytes, lasting: bool = True, mode: int = 0o666) -> None:
    """Either the old file or the whole new one is there, also after a crash (of the machine too,
    where it is lasting). An error names the file, and leaves nothing of it behind."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as wrong:
        part.unlink(missing_ok=True)
        raise OSError(wrong.errno, wrong.strerror, str(path)) from wrong
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
        self._before = self.checkpoint / "commit-before.json"
        self._rounds = path / "rounds.jsonl"
        self._written = 0  # bytes and checksum of rounds.jsonl up to the last whole round
        self._checksum = 0
        self._note = ""  # of what the next record should tell
        self._sums: dict[str, int] = {}  # checksums of the files that stay

    @classmethod
    def finished(cls, path: Path) -> "RunFolder":
        """The folder of a run that reached its end; any other is refused."""
        folder = cls(path)
        if not folder.begun:
            raise FedmapError(f"{path} is not a run folder: it has no run.toml")
        if not folder.done:
            raise FedmapError(
                f"the run in {path} is not finished; go on with: {resume_command(path)}"
            )
        for name in ("run.toml", "rounds.jsonl", "final.json"):
            folder.intact(name)
        return folder

    def intact(self, name: str) -> Path:
        """A file of the finished run, if it is as the run left it. (Runs of older versions have no
        checksums.)"""
        path, sums = self.path / name, self._checksums()
        if sums and not path.is_file():
            raise FedmapError(f"{path} is missing; get the run's folder again, or run it again")
        if name in sums and zlib.crc32(path.read_bytes()) != sums[name]:
            raise FedmapError(
                f"{path} is damaged or was changed: its checksum is not the one that the run left; "
                "get it again, or run it again"
            )
        return path

    def _checksums(self) -> dict[str, int]:
        path = self.path / "done"
        try:
            return dict(json.loads(path.read_text() or "{}"))
        except (OSError, ValueError, TypeError) as wrong:
            raise FedmapError(
                f"{path} is damaged ({wrong}); the run's files are in doubt"
            ) from None

    @property
    def done(self) -> bool:
        """Is the run finished?"""
        return (self.path / "done").exists()

    @property
    def begun(self) -> bool:
        """Has a run been started here?"""
        return (self.path / "run.toml").exists()

    def what_is_kept(self) -> str:
        """What a person is told of a run that could not go on."""
        if not self.begun:
            return "the folder was removed while the run went on, and nothing of it is kept"
        if not (self._commit.exists() or self._before.exists()):
            return f"no whole round is kept, begin again with: {resume_command(self.path)}"
        return f"whole rounds are kept, go on with: {resume_command(self.path)}"

    def tidy(self, keep_states: bool) -> None:
        """Remove the checkpoint of a finished run whose process was killed before it could."""
        if self.done and self.checkpoint.exists() and not keep_states:
            # Somebody may be about to do it, or the folder may not be ours.
            with suppress(FedmapError, OSError), self.locked():
                pass

    def refuse_foreign(self) -> None:
        """Refuse a folder in which somebody else has files and no run was ever started."""
        found = sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []
        if not self.begun and not BEFORE.issuperset(found):
            foreign = next(name for name in found if name not in BEFORE)
            raise FedmapError(
                f"{self.path} is not empty and no run folder: it has {foreign!r} and no run.toml; "
                "choose a new folder"
            )

    @contextmanager
    def locked(self, keep_states: bool = False) -> Iterator[None]:
        """Only one process at a time works in the folder. The lock goes with the process and its
        workers, however they end. The checkpoint of a run that is done goes, unless it is to be
        kept."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.checkpoint.mkdir(mode=0o700, exist_ok=True)
        except OSError as wrong:
            raise FedmapError(f"cannot make the folder {self.path}: {wrong.strerror}") from None
        for folder in (self.checkpoint, self.path / "personal"):
            if folder.is_symlink():
                raise linked(folder)
        with locked(self.checkpoint / "lock"):
            yield
            if self.done and not keep_states:
                shutil.rmtree(self.checkpoint, ignore_errors=True)

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file of the run, whole or not at all."""
        path, content = self.path / name, content.encode() if isinstance(content, str) else content
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, content, self.lasting)
        if path.parent != self.checkpoint:
            self._sums[name] = zlib.crc32(content)

    def describe(self, text: str) -> None:
        """Write run.toml, and beside the checkpoint what it says now: a person may change the one,
        and the run goes on by the other."""
        self.write("run.toml", text)
        if self.lasting:
            self.write("checkpoint/run.toml", text)

    @property
    def description(self) -> Path:
        """run.toml as the run was begun with."""
        begun = self.checkpoint / "run.toml"
        return begun if begun.exists() else self.path / "run.toml"

    def finish(self) -> None:
        """The mark of a finished run, with a checksum of each of its files."""
        records = {"rounds.jsonl": self._checksum} if self._written else {}
        self.write("done", json.dumps(self._sums | records, indent=1) + "\n")

    def commit(self, record: Record, server: Values, store: StateStore) -> None:
        """Make a round final: the clients' states are in the store already; then server state,
        record, and the commit."""
        number = record["round"]
        if self._note:
            record["note"], self._note = self._note, ""
        if not self.lasting:
            self._append(record)
            return
        store.sync()
        self._append(record)
        self._commit_to(number, values.save(server))
        self._server(number - 2).unlink(missing_ok=True)

    def _server(self, round: int) -> Path:
        return self.checkpoint / f"server-{round}.safetensors"

    def _commit_to(self, number: int, server: bytes) -> None:
        """The server state of a round whose record is written, then the file that makes both
        count."""
        write_atomically(self._server(number), server)
        commit = {
            "round": number,
            "server_crc": zlib.crc32(server),
            "rounds_bytes": self._written,
            "rounds_crc": self._checksum,
        }
        if self._commit.exists():  # copied, so that at no moment there is none
            write_atomically(self._before, self._commit.read_bytes(), lasting=False)
        write_atomically(self._commit, json.dumps(commit).encode())

    def keep_best(self, round: int, server: Values) -> None:
        """The server state of the round that is the best so far, before it is committed. The
        checksum is in its name."""
        if self.lasting:
            content = values.save(server)
            name = f"best-{round}-{zlib.crc32(content):08x}.safetensors"
            write_atomically(self.checkpoint / name, content)

    def forget_best(self, *wanted: int | None) -> None:
        """Only these rounds may still be asked for."""
        for file in self.checkpoint.glob("best-*.safetensors"):
            if int(file.name.split("-")[1]) not in wanted:
                file.unlink()

    def best(self, round: int) -> Values:
        """The server state that `keep_best` kept."""
        for file in self.checkpoint.glob(f"best-{round}-*.safetensors"):
            if file.stem.endswith(f"{zlib.crc32(file.read_bytes()):08x}"):
                return values.load(file)
        raise FedmapError(
            f"the state of the best round, {round}, is missing from {self.checkpoint} or damaged; "
            "the run cannot go on"
        )

    def reopen(self) -> None:
        """Take the end of a finished run back, for more rounds: its last round is the last commit,
        and its results stand until there are new ones."""
        RunFolder.finished(self.path)
        if not self._commit.exists():
            content = self._rounds.read_bytes()
            self._written, self._checksum = len(content), zlib.crc32(content)
            state = values.save(values.load(self.intact("server.safetensors")))
            self._commit_to(len(content.splitlines()), state)
        (self.path / "done").unlink()

    def _append(self, record: Record) -> None:
        """A line more in rounds.jsonl, after the last whole round."""
        line = (json.dumps(record) + "\n").encode()
        with open(open_own(self._rounds, os.O_RDWR | os.O_CREAT), "r+b") as rounds:
            rounds.truncate(self._written)
            rounds.seek(self._written)
            rounds.write(line)
            rounds.flush()
            if self.lasting:
                os.fsync(rounds.fileno())
        self._written += len(line)
        self._checksum = zlib.crc32(line, self._checksum)

    def records(self) -> list[Record]:
        """The records of all whole rounds of a finished run; there is at least one."""
        lines = self._rounds.read_bytes().splitlines() if self._rounds.exists() else []
        return [parsed(line, self._rounds) for line in lines or [b""]]

    def records_so_far(self) -> list[Record]:
        """The records of a run that may be going on: the last line may be half written."""
        try:
            content = self._rounds.read_bytes()
        except FileNotFoundError:
            return []
        return [parsed(line, self._rounds) for line in content.split(b"\n")[:-1]]

    def final(self) -> Record:
        """The summary of a finished run."""
        path = self.path / "final.json"
        return parsed(path.read_bytes() if path.exists() else b"", path)

    def restore(self, store: StateStore) -> tuple[list[Record], Values | None]:
        """The records and the server state of the last whole round; the store is brought back to
        it. (No round: [], None.) Where that round is damaged, the one before takes its place."""
        if not self.lasting:
            return [], None
        fault = ""
        for path in (self._commit, self._before):
            try:
                records, server = self._whole(path, store)
            except (FedmapError, OSError) as wrong:
                fault = fault or str(wrong)
                continue
            os.replace(path, self._commit)
            self._go_on_from(len(records), store, fault)
            return records, server
        if self._rounds_begun() > 1:
            raise FedmapError(
                f"{fault}; nor is the round before it whole, so the run cannot go on: start it "
                "again in another folder"
            )
        self._go_on_from(0, store, fault if self._commit.exists() else "")
        return [], None

    def _go_on_from(self, round: int, store: StateStore, fault: str) -> None:
        """Forget all that is later. What made it necessary is said, and noted in a record."""
        store.forget_after(round)
        if fault:
            self.tell(f"{fault}; the run goes on from round {round}, the last whole one")

    def tell(self, note: str) -> None:
        """What is unusual about this run: said now, and noted in the next round's record."""
        print(f"fedmap: {note}", file=sys.stderr, flush=True)
        self._note = f"{self._note}; {note}" if self._note else note

    def _whole(self, path: Path, store: StateStore) -> tuple[list[Record], Values]:
        """The records and the server state of the round that a commit names, if all of it is
        unharmed."""
        if not path.exists():
            raise FedmapError(f"{path} is missing")
        try:
            commit = json.loads(path.read_text())
            number, size, crc = (commit[name] for name in ("round", "rounds_bytes", "rounds_crc"))
            server_crc = commit["server_crc"]
            content = self._rounds.read_bytes()[:size] if self._rounds.exists() else b""
        except (ValueError, KeyError, TypeError):
            raise FedmapError(f"{path} is damaged") from None
        server = self._server(number)
        state = server.read_bytes() if server.exists() else b""
        for file, found, wanted in (
            (self._rounds, zlib.crc32(content), crc),
            (server, zlib.crc32(state), server_crc),
        ):
            if found != wanted:
                raise FedmapError(
                    f"{file} is damaged: its checksum differs from the one of round {number}"
                )
        records = [json.loads(line) for line in content.splitlines()]
        for client, round in last_rounds(records).items():
            store.check(client, round, number)
        self._written, self._checksum = len(content), crc
        return records, values.load(server)

    def _rounds_begun(self) -> int:
        """Up to which round there are records or server states, whole or not."""
        lines = self._rounds.read_bytes().splitlines() if self._rounds.exists() else []
        servers = [path.stem.rpartition("-")[2] for path in self.checkpoint.glob("server-*")]
        return max([len(lines), *(int(round) for round in servers if round.isdecimal())])


def parsed(content: bytes, path: Path) -> Record:
    """The dictionary in a text of JSON."""
    try:
        found = json.loads(content)
    except ValueError as wrong:
        raise FedmapError(f"{path} is damaged: {wrong}; get it again, or run it again") from None
    if not isinstance(found, dict):
        raise FedmapError(f"{path} is damaged: it holds {found!r}, no record")
    return found


def last_rounds(records: list[Record]) -> dict[int, int]:
    """In which round each client took part last."""
    return {client["client"]: record["round"] for record in records for client in record["clients"]}
