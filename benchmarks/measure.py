"""How it is measured: each contender's environment and process, the turns that they take, and the
machine's own numbers."""

import json
import math
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from catalog import CONTENDERS, HERE, fitted
from workload import Workload

from fedmap.data import load
from fedmap.errors import FedmapError
from nets import flop, parameters

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedmap-benchmarks"
PATIENCE = 1800  # seconds that a contender may take to start, or for a round
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r")


class ContenderError(Exception):
    """A contender that cannot take part, with one line that says why."""


def measure(workload: Workload, names: list[str], rounds: int, logs: Path) -> dict[str, Any]:
    """Every contender's rounds, in turns. One that fails is left out, and the others go on."""
    match = Match(workload, rounds, logs)
    try:
        for name in names:
            match.enter(name)
        for turn in range(rounds + 1):
            match.take_turns(backwards=turn % 2 == 1)
    finally:
        match.close()
    return match.result() | {"peak": matmul_peak(), "workload": json.loads(workload.write())}


class Match:
    """The contenders at one workload: those that still take part, and what each has shown."""

    def __init__(self, workload: Workload, rounds: int, logs: Path) -> None:
        self.workload, self.rounds, self.logs = workload, rounds, logs
        self.players: dict[str, Player] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, str] = {}

    def enter(self, name: str) -> None:
        """Compare a contender's work with what is asked for, then start it."""
        work, log = fitted(name, self.workload), self.logs / f"{name}.log"
        with self._left_out_if_it_fails(name):
            differs = remarks(name, work, log)
            player = self.players[name] = Player(name, replace(work, rounds=self.rounds + 1), log)
            self.entries[name] = {
                "seconds": [],
                "memory": 0.0,
                "remarks": differs,
                "start": player.start,
                "flop": operations(work),
                **player.ready,
            }

    def take_turns(self, *, backwards: bool) -> None:
        """One round of every contender."""
        for name in list(self.players)[:: -1 if backwards else 1]:
            with self._left_out_if_it_fails(name):
                player, entry = self.players[name], self.entries[name]
                entry["seconds"].append(player.round()["seconds"])
                entry["memory"] = max(entry["memory"], player.memory)

    def close(self) -> None:
        """End all processes."""
        for player in self.players.values():
            player.close()

    def result(self) -> dict[str, Any]:
        """What was measured. The first round was a warm-up: what it took longer is start-up."""
        for entry in self.entries.values():
            warm_up, *entry["seconds"] = entry["seconds"]
            entry["start"] += max(warm_up - statistics.median(entry["seconds"]), 0.0)
        return {"contenders": self.entries, "failed": self.failed}

    @contextmanager
    def _left_out_if_it_fails(self, name: str) -> Iterator[None]:
        try:
            yield
        except ContenderError as why:
            print(f"{name}: {why}", flush=True)
            self.failed[name] = str(why)
            self.players.pop(name, None)
            self.entries.pop(name, None)


class Player:
    """A contender's process. It does a round when it is asked to, and sleeps otherwise."""

    def __init__(self, name: str, workload: Workload, log: Path) -> None:
        contender = CONTENDERS[name]
        python, script = interpreter(contender.environment), HERE / "contenders" / contender.script
        command = [python, *contender.launcher, str(script), workload.write()]
        self.log, began = log, time.perf_counter()
        # its processes, with their times of birth: numbers are used again
        self.everyone: dict[int, str] = {}
        pipe = subprocess.PIPE
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=errors, cwd=log.parent
            )
        self.ready = self._answer()
        self.start = time.perf_counter() - began

    def round(self) -> dict[str, Any]:
        """One round's seconds, and the work that was counted in it."""
        assert self.process.stdin
        with suppress(BrokenPipeError):  # the missing answer tells more
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.close()
            raise ContenderError(f"gave no answer within {PATIENCE} s; its log is {self.log}")
        line = self.process.stdout.readline()
        if not line:
            self.close()
            log = self.log.read_text(errors="replace")
            raise ContenderError(f"{reason(log)} (all of it: {self.log})")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def memory(self) -> float:
        """MB that all of its processes hold now; what they share counts once."""
        self._meet_everyone()
        return sum(share_of_memory(pid) for pid in family(self.process.pid)) / 1e6

    def _meet_everyone(self) -> None:
        self.everyone |= {pid: birth(pid) for pid in family(self.process.pid)}

    def close(self) -> None:
        """Its standard input ends, which ends it; what it has started and left behind is ended by
        number."""
        self._meet_everyone()
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        for pid, born in self.everyone.items():
            if born and birth(pid) == born:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def interpreter(environment: str | None) -> str:
    """The Python of a peer's environment, which is installed at first use, and again where the
    requirements have changed since."""
    if environment is None:
        return sys.executable
    wanted, home = HERE / "environments" / f"{environment}.txt", CACHE / environment
    python, mark = home / "bin" / "python", home / "installed.txt"
    if not mark.exists() or mark.read_text() != wanted.read_text():
        print(f"installing {environment} into {home} ...", flush=True)
        venv.create(home, clear=True, with_pip=True)
        pip = subprocess.run(
            [str(python), *PIP, str(wanted)], capture_output=True, text=True, check=False
        )
        if pip.returncode:
            raise ContenderError(f"cannot be installed: {reason(pip.stderr)}")
        mark.write_text(wanted.read_text())
    return str(python)


def reason(text: str) -> str:
    """The line of a log that tells most: the last error, else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    errors = [line for line in lines if "Error: " in line or "ERROR: " in line]
    return (errors or lines)[-1]


def family(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                yield from family(int(child))


def birth(pid: int) -> str:
    """When a process began, in the kernel's ticks; nothing where there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def share_of_memory(pid: int) -> float:
    """Bytes of a process in memory; what it shares with others counts in parts."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1]) * 1e3
    return 0.0


def with_images(workload: Workload, folder: Path) -> Workload:
    """The workload with its data set in a file that every contender can read: pixels and labels, in
    an order drawn once."""
    if workload.data == "noise":
        return workload
    try:
        data = load(workload.data)
    except FedmapError as missing:
        print(f"noise instead of {workload.data}: {missing}", flush=True)
        return replace(workload, data="noise")
    file = folder / f"{workload.data}.pt"
    order = torch.randperm(len(data.train_y), generator=torch.Generator().manual_seed(0))
    train, test = (data.train_x[order], data.train_y[order]), (data.test_x, data.test_y)
    torch.save({"train": train, "test": test}, file)
    return replace(workload, images=str(file.resolve()))


def remarks(name: str, workload: Workload, log: Path) -> list[str]:
    """How a contender's work differs from what is asked for, counted in the second round of a small
    case."""
    scored = min(workload.global_test, 500)
    small = replace(
        workload, clients=4, clients_a_round=2, global_test=scored, rounds=2, count=True
    )
    player = Player(name, small, log)
    size, wanted = player.ready["parameters"], parameters(small.build())
    player.round()
    work = player.round()
    player.close()
    found = []
    if size != wanted:
        found.append(f"a net of {size} parameters instead of {wanted}")
    if work["steps"] != small.steps:
        found.append(f"{work['steps']} steps instead of {small.steps} in the small case")
    # the teacher of MAP's second stage classifies too
    if work["scored"] != small.scored and small.method != "map":
        found.append(f"scores {work['scored']} samples instead of {small.scored} in the small case")
    return found


def operations(workload: Workload) -> float:
    """FLOP of a round. What a method adds to its local steps, such as MAP's teacher, is not
    counted."""
    forward, step = flop(workload.net, workload.shape)
    epochs = workload.epochs * (2 if workload.method == "ditto" else 1)
    return forward * workload.scored + step * workload.train * epochs * workload.clients_a_round


def matmul_peak(size: int = 2048, repeats: int = 20) -> float:
    """FLOP/s of the best of some float32 matrix products on two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = math.inf
    for _ in range(repeats):
        began = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - began)
    torch.set_num_threads(before)
    return 2 * size**3 / best


def machine() -> dict[str, Any]:
    """The processor, its cores, and the version of Python."""
    cpu = platform.processor() or platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":")[1].strip()
                break
    return {"cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version()}
