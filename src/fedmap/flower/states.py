"""A site's private files: its state in two slots, and the personal model that it ends with. They
never leave the folder."""

import hmac
import re
import secrets
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fedmap import values
from fedmap.errors import FedmapError
from fedmap.simulate.folder import write_atomically
from fedmap.simulate.system import wait_for
from fedmap.simulate.uploads import kinds
from fedmap.values import Values

SLOTS = ("state-0.safetensors", "state-1.safetensors")


class Moment(NamedTuple):
    """When a state was made. A later start of the server counts more than a later round."""

    start: int
    round: int


class States:
    """The folder of one site in one run. A new state goes to the slot that does not hold the last
    one that counts, so a round can be done again, and a crash while writing loses nothing."""

    def __init__(self, root: Path, run: str, site: str, initial: Values) -> None:
        if not re.fullmatch(r"[0-9a-f]{16}", run):
            raise FedmapError(f"{run!r} is not the name of a run")
        self.path = root / f"{site}-{run}"
        self.initial = initial
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as wrong:
            raise FedmapError(f"cannot make the folder {self.path}: {wrong.strerror}") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one order at a time works here."""
        with open(self.path / "lock", "w") as lock:
            wait_for(lock.fileno())
            yield

    def before(self, now: Moment, counted: int) -> tuple[Values, str]:
        """The state that a round begins with, and a note where it is not there. An order from
        before the newest state is refused, and nothing is touched."""
        moments = self._moments()
        newest = max((m for m in moments if m), default=Moment(0, 0))
        if now < newest:
            raise FedmapError(
                f"an old order (round {now.round} of start {now.start}): this site has done round "
                f"{newest.round} of start {newest.start}"
            )
        if not self.initial or not counted:
            return self.initial, ""
        for slot, moment in zip(SLOTS, moments, strict=True):
            if moment is not None and moment.round == counted:
                state = self._read(slot)
                if state is not None:
                    return state, ""
        return self.initial, (
            f"the state of round {counted} in {self.path} is damaged or gone; this site goes on as "
            "a newcomer"
        )

    def keep(self, now: Moment, counted: int, state: Values) -> None:
        """Write a new state, whole or not at all, and not over the one that counts."""
        if not self.initial:
            return
        if kinds(state) != kinds(self.initial):
            raise FedmapError("the state has changed its entries or shapes")
        notes = {"start": str(now.start), "round": str(now.round), "crc": str(checksum(state))}
        moments = self._moments()
        free = [s for s in (0, 1) if (moment := moments[s]) is None or moment.round != counted]
        slot = min(free or (0, 1), key=lambda s: moments[s] or Moment(-1, -1))
        self.write(SLOTS[slot], values.save(state, notes))

    def secret(self, down: Values, state: Values) -> int:
        """A number that nobody else can know, for the noise on what leaves: the same when the same
        round is done again, and another for anything else."""
        path = self.path / "secret"
        if not path.exists():
            self.write(path.name, secrets.token_bytes(32))
        what = checksum(state).to_bytes(4) + values.save(
            {name: down[name] for name in sorted(down)}
        )
        return int.from_bytes(hmac.digest(path.read_bytes(), what, "sha256"))

    def write(self, name: str, content: bytes) -> None:
        """Write a private file."""
        try:
            write_atomically(self.path / name, content, mode=0o600)
        except OSError as wrong:
            raise FedmapError(f"cannot write {self.path / name}: {wrong.strerror}") from None

    def _moments(self) -> list[Moment | None]:
        """When the slots' states were made; None for an empty or unreadable slot."""
        moments: list[Moment | None] = []
        for slot in SLOTS:
            try:
                notes = values.load_notes(self.path / slot)
                moments.append(Moment(int(notes["start"]), int(notes["round"])))
            except Exception:  # not there, or damaged in any way
                moments.append(None)
        return moments

    def _read(self, slot: str) -> Values | None:
        """A slot's state; None if it is damaged."""
        try:
            state = values.load(self.path / slot)
            crc = int(values.load_notes(self.path / slot)["crc"])
        except Exception:
            return None
        return state if checksum(state) == crc and kinds(state) == kinds(self.initial) else None


def checksum(state: Values) -> int:
    """Of all entries."""
    return zlib.crc32(values.save({name: state[name] for name in sorted(state)}))
