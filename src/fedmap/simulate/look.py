"""A run seen from outside, while it goes on or after it: how far it is, and whether it lives."""

from pathlib import Path
from statistics import mean
from typing import Literal, NamedTuple

from fedmap.errors import FedmapError
from fedmap.own_code import short_name
from fedmap.simulate.choose import best_round
from fedmap.simulate.folder import Record, RunFolder, resume_command
from fedmap.simulate.lock import held
from fedmap.simulate.settings import described

State = Literal["waiting", "running", "stopped", "done", "diverged", "pruned", "unknown"]
OVER = ("done", "diverged", "pruned")  # nothing more will come
RECENT = 10  # rounds whose time tells that of the next ones


class Look:
    """What is known of one run's folder at this moment. Nothing that it names is run."""

    def __init__(self, path: Path, label: str = "", rounds: int = 0) -> None:
        self.path = path
        self.state = state_of(path)
        self.records: list[Record] = []
        self.label, self.rounds = label, rounds
        if self.state != "waiting":
            settings = described(path / "run.toml")
            self.records = RunFolder(path).records_so_far()
            self.label = label or f"{short_name(str(settings.get('method', '')))}"
            found = settings.get("rounds", 0)
            self.rounds = found if isinstance(found, int) else 0

    @property
    def over(self) -> bool:
        """Has it ended?"""
        return self.state in OVER

    @property
    def seconds_left(self) -> float | None:
        """By the last rounds; None where none is known. The end of a run is not counted."""
        recent = [record["seconds"] for record in self.records[-RECENT:]]
        return mean(recent) * (self.rounds - len(self.records)) if recent else None

    @property
    def best(self) -> "Best | None":
        """The round to keep, by held-out samples; else the one with the best global accuracy, or
        where there is no global model the best personal one."""
        chosen = best_round(self.records)
        if chosen is not None:
            return Best(chosen, "on held-out samples")
        for name, words in (("global_accuracy", "global"), ("personal_accuracy", "personal")):
            known = {r["round"]: r[name] for r in self.records if r.get(name) is not None}
            if known:
                return Best(max(known, key=lambda round: known[round]), words)
        return None

    def curve(self, name: str) -> list[float]:
        """One of the accuracies, round by round, where it is known."""
        return [record[name] for record in self.records if record.get(name) is not None]

    @property
    def left_out(self) -> int:
        """How many uploads did not count."""
        return sum(len(record.get("left_out", ())) for record in self.records)

    def sentence(self) -> str:
        """What a person should know or do; nothing while all goes well."""
        if self.state == "stopped":
            return f"stopped; go on with: {resume_command(self.path)}"
        if self.state in ("diverged", "pruned"):
            return f"{self.state}: {(self.path / self.state).read_text().strip()}"
        if self.state == "unknown":
            return "its lock is another user's: whether it goes on cannot be told"
        return ""


class Best(NamedTuple):
    """A round, and what makes it the best."""

    round: int
    why: str


def state_of(path: Path) -> State:
    """The lock is asked first: a run that ends meanwhile has its mark by then."""
    if path.exists() and not path.is_dir():
        raise FedmapError(f"{path} is a file; a run is a folder")
    alive = held(path / "checkpoint" / "lock")
    if not (path / "run.toml").exists():
        return "waiting"
    if (path / "done").exists():
        return "done"
    if alive is None:
        return "unknown"
    if alive:
        return "running"
    if (path / "diverged").exists():
        return "diverged"
    return "pruned" if (path / "pruned").exists() else "stopped"
