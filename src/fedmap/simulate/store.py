"""The clients' private states. `FileStore` has them in one file, or in memory, with two slots for
each client: a new state goes to the slot that is not in use, so the state of the last whole round
is never overwritten and the file itself is the checkpoint."""

import os
import struct
import weakref
import zlib
from pathlib import Path
from typing import Protocol

from fedmap.errors import FedmapError
from fedmap.simulate.files import open_own
from fedmap.simulate.memory import Memory
from fedmap.simulate.system import read_at, sync_content, write_at
from fedmap.values import ALIGNMENT, Layout, Values

# The round that a state was made in (0: none), and a checksum of the state.
HEADER = struct.Struct("<qI")
TICKET = struct.Struct("<q")  # at the end of the file: how often it has been opened


class StateStore(Protocol):
    """Where a run keeps its clients' states. A client never seen has the initial state."""

    def __getitem__(self, client: int) -> Values: ...

    def put(self, client: int, round: int, state: Values) -> None:
        """Keep the state that a client left in this round."""
        ...

    def drop(self, client: int, round: int) -> None:
        """Go back to the state before this round: it does not count for the client."""
        ...

    def forget_after(self, round: int) -> None:
        """Drop states of a round that was not completed."""
        ...

    def check(self, client: int, round: int, at: int) -> None:
        """Was the client's state after round `at` the one of this round, and is it unharmed?"""
        ...

    def sync(self) -> None:
        """Bring what was written to the disk."""
        ...


class FileStore:
    """States in a file, or in memory without a path. Processes forked later read the same bytes.
    Whoever opens the file takes the next ticket, and a write with an older one is refused: so a
    process that outlives its run cannot touch the states of the run that goes on."""

    def __init__(self, initial: Values, clients: int, path: Path | None = None) -> None:
        self.initial = initial
        self.clients = clients
        self._layout = Layout.of(initial)
        self._slot = ALIGNMENT + self._layout.nbytes
        self._path = path
        self._memory = None
        if path is None:
            self._memory = Memory()
            self._fd = self._memory.fd
        else:
            self._fd = open_own(path, os.O_RDWR | os.O_CREAT, 0o600)
            weakref.finalize(self, os.close, self._fd)
            if hasattr(os, "fchmod"):
                os.fchmod(self._fd, 0o600)  # states are private, also where an older one was not
        # Sparse: what is never written takes no room.
        os.ftruncate(self._fd, 2 * clients * self._slot + TICKET.size)
        self._ticket = self._newest_ticket() + 1
        _write_all(self._fd, TICKET.pack(self._ticket), 2 * clients * self._slot)

    def _newest_ticket(self) -> int:
        packed = bytearray(TICKET.size)
        read_at(self._fd, memoryview(packed), 2 * self.clients * self._slot)
        return int(TICKET.unpack(packed)[0])

    def _write(self, data: bytes | bytearray, offset: int) -> None:
        if self._newest_ticket() != self._ticket:
            raise FedmapError(
                f"another process has gone on with the run of {self._path}; what this one still "
                "does no longer counts"
            )
        _write_all(self._fd, data, offset)

    def _headers(self, client: int) -> list[tuple[int, int]]:
        starts = [(2 * client + slot) * self._slot for slot in (0, 1)]
        headers = [bytearray(HEADER.size) for _ in starts]
        for header, start in zip(headers, starts, strict=True):
            read_at(self._fd, memoryview(header), start)
        return [HEADER.unpack(header) for header in headers]

    def _packed(self, client: int, slot: int) -> bytearray:
        """A slot's state, read and not mapped: a mapped file counts as this process's memory, and
        there are thousands of clients."""
        packed, end = bytearray(self._layout.nbytes), 0
        start = (2 * client + slot) * self._slot + ALIGNMENT
        while end < len(packed):
            end += read_at(self._fd, memoryview(packed)[end:], start + end)
        return packed

    def round_of(self, client: int) -> int:
        """The round that the client's state was made in; 0 where it has none of its own."""
        return max(round for round, _ in self._headers(client))

    def __getitem__(self, client: int) -> Values:
        if not self.initial:
            return {}
        rounds = [round for round, _ in self._headers(client)]
        if max(rounds) == 0:
            return self.initial
        return self._layout.read(self._packed(client, rounds.index(max(rounds))))

    def put(self, client: int, round: int, state: Values) -> None:
        """Write a new state into the slot that is not in use."""
        if not self.initial:
            return
        if state.keys() == self.initial.keys():  # in whatever order
            state = {name: state[name] for name in self.initial}
        if Layout.of(state) != self._layout:
            raise FedmapError(
                f"the state of client {client} has changed its entries or shapes; a method's state "
                "keeps those of `client_state`"
            )
        packed = bytearray(self._layout.nbytes)
        self._layout.write(state, packed)
        rounds = [r for r, _ in self._headers(client)]
        start = (2 * client + (1 - rounds.index(max(rounds)))) * self._slot
        try:
            self._write(packed, start + ALIGNMENT)
            self._write(HEADER.pack(round, zlib.crc32(packed)), start)
        except OSError as wrong:
            where = self._path or "the clients' states"
            raise FedmapError(
                f"cannot write {where}: {wrong.strerror}; whole rounds are kept, and the run can "
                "be resumed"
            ) from None

    def drop(self, client: int, round: int) -> None:
        """Go back to the state before this round: it does not count for the client."""
        for slot, (made_in, _) in enumerate(self._headers(client) if self.initial else ()):
            if made_in >= round:
                self._write(HEADER.pack(0, 0), (2 * client + slot) * self._slot)

    def forget_after(self, round: int) -> None:
        """Drop states of a round that was not completed."""
        for client in range(self.clients):
            self.drop(client, round + 1)

    def check(self, client: int, round: int, at: int) -> None:
        """Was the client's state after round `at` the one of this round, and is it unharmed?"""
        if not self.initial:
            return
        headers = self._headers(client)
        found = max((made_in for made_in, _ in headers if made_in <= at), default=0)
        if found != round:
            raise FedmapError(
                f"the checkpoint has client {client}'s state of round {found}, not of round {round}"
            )
        slot = [made_in for made_in, _ in headers].index(round)
        if zlib.crc32(self._packed(client, slot)) != headers[slot][1]:
            raise FedmapError(
                f"the checkpoint of client {client}'s state (round {round}) is damaged: its "
                "checksum differs"
            )

    def sync(self) -> None:
        """Bring what was written to the disk."""
        if self._memory is None:
            sync_content(self._fd)


def _write_all(fd: int, data: bytes | bytearray, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = write_at(fd, view, offset)
        view, offset = view[written:], offset + written
