"""Does a run survive kill -9 at any moment, to the bit?

    python benchmarks/crash.py [--kills 200] [--seed 0] [--out crash]

Runs of five methods are killed without warning (the parent, one worker, or all of them), resumed at
once, killed again, and at last left to finish. Each is compared with a run that nobody touched:
models, server state, final numbers, and records without their seconds. Whom a signal hits and when
is drawn from the seed, in shares of the time that the untouched run took; what it hits there is the
machine's choice. Writes OUT.json and OUT.png; the exit code is 1 where a run is lost or differs."""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import fedmap
from fedmap.report.plots import COLORS, bare, save

METHODS = ["map", "scaffold", "fedopt", "feddf", "ditto"]
WHO = ["parent", "worker", "both"]
# Four clients a round of about a sixth of a second each, two at a time.
SETTINGS: dict[str, Any] = {"net": "lenet", "rounds": 6, "fraction": 0.5, "epochs": 3, "workers": 2}
CLIENTS = 8
AT_ONCE = 0.2  # share of the kills that come as soon as the process is there
PATIENCE = 120  # seconds that a process may take to end, or to let go of the folder
OCCUPIED = "another process works in"


@dataclass
class Kill:
    """One signal, and where the run was."""

    who: str
    seconds: float  # since this process was started
    rounds: int  # that were whole by then
    resumed: bool = False


@dataclass
class Trial:
    """One run with its kills."""

    method: str
    kills: list[Kill] = field(default_factory=list)
    failure: str = ""  # nothing where the run ended as the untouched one did


class Process:
    """A run, or its resumption, in a process group of its own."""

    def __init__(self, method: str, federation: fedmap.Federation, out: Path) -> None:
        self.log = out.with_suffix(".log")
        self.began = time.monotonic()
        self.pid = os.fork()
        if not self.pid:
            os._exit(carry_out(method, federation, out, self.log))

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None if it still works after so many seconds."""
        until = time.monotonic() + seconds
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)

    def kill(self, who: str, rng: random.Random) -> None:
        """Send the signal."""
        with suppress(ProcessLookupError):
            if who == "both":
                os.killpg(self.pid, signal.SIGKILL)
            else:
                os.kill(self.pid if who == "parent" else self.a_worker(rng), signal.SIGKILL)

    def a_worker(self, rng: random.Random) -> int:
        """One of the processes that it has started, or starts soon."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
            workers = [int(pid) for children in tasks for pid in children.read_text().split()]
            if len(workers) == SETTINGS["workers"]:
                return rng.choice(workers)
            time.sleep(0.002)
        raise ProcessLookupError


def carry_out(method: str, federation: fedmap.Federation, out: Path, log: Path) -> int:
    """The whole life of a process; its exit code is that of the command line."""
    os.setsid()
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fedmap.run(method, federation, out=out, resume=True, **SETTINGS)
            return 0
        except BaseException as wrong:
            if OCCUPIED in str(wrong) and time.monotonic() < until:
                time.sleep(0.02)  # what a killed process left ends soon
                continue
            known = isinstance(wrong, fedmap.FedmapError)
            log.write_text(str(wrong) if known else traceback.format_exc())
            return 1


def rounds_of(out: Path) -> int:
    """How many rounds are written."""
    records = out / "rounds.jsonl"
    return records.read_bytes().count(b"\n") if records.exists() else 0


def content(out: Path) -> dict[str, Any]:
    """All that must be equal."""
    models = sorted(out.rglob("*.safetensors"))
    lines = (out / "rounds.jsonl").read_text().splitlines()
    return {str(path.relative_to(out)): path.read_bytes() for path in models} | {
        "final.json": (out / "final.json").read_bytes(),
        "rounds.jsonl": [json.loads(line) | {"seconds": 0} for line in lines],
    }


class Arena:
    """Where runs are killed: a federation, the untouched runs, and a folder for all."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.federation = fedmap.partition(fedmap.load("fashion-mini"), clients=CLIENTS, seed=0)
        self.untouched: dict[str, tuple[float, dict[str, Any]]] = {}

    def reference(self, method: str) -> tuple[float, dict[str, Any]]:
        """How long the untouched run takes, and what it leaves."""
        if method not in self.untouched:
            out = self.folder / f"{method}-untouched"
            process = Process(method, self.federation, out)
            if process.wait(PATIENCE) != 0:
                raise SystemExit(f"{method} fails by itself: {process.log.read_text()}")
            self.untouched[method] = time.monotonic() - process.began, content(out)
        return self.untouched[method]

    def trial(self, method: str, number: int, most: int) -> Trial:
        """One run: some kills, each followed by a resume, then the rest in peace."""
        rng = random.Random(f"{self.seed} {method} {number}")
        whole, expected = self.reference(method)
        out = self.folder / f"{method}-{number}"
        trial = Trial(method)
        for _ in range(min(rng.randint(3, 7), most)):
            moment = whole * rng.uniform(0.02, 0.45) * (rng.random() > AT_ONCE)
            if self.go_on(trial, out, rng, moment, rng.choice(WHO)) or trial.failure:
                break
        if not trial.failure and not (out / "done").exists():
            self.go_on(trial, out, rng, PATIENCE)
        if not trial.failure:
            found = content(out)
            differ = [name for name in expected if found.get(name) != expected[name]]
            differ += [name for name in found if name not in expected]
            trial.failure = f"differs: {', '.join(differ)}" if differ else ""
        shutil.rmtree(out, ignore_errors=True)
        return trial

    def go_on(
        self, trial: Trial, out: Path, rng: random.Random, moment: float, who: str = ""
    ) -> bool:
        """Start or resume a run, and kill it after so many seconds. Is it done?"""
        process = Process(trial.method, self.federation, out)
        code = process.wait(moment)
        if code is not None:
            trial.failure = process.log.read_text().strip() if code else ""
        elif not who:
            trial.failure = f"does not end within {PATIENCE} s"
        if trial.kills:
            trial.kills[-1].resumed = not trial.failure
        if code is None and who:
            trial.kills.append(Kill(who, time.monotonic() - process.began, rounds_of(out)))
            process.kill(who, rng)
            code = process.wait(PATIENCE)
            trial.failure = f"hangs after a {who}'s death" if code is None else ""
        if code is None:
            process.kill("both", rng)
            process.wait(PATIENCE)
        return code == 0


def table(trials: list[Trial]) -> str:
    """For each method and each victim: kills, resumed, and kills of runs that ended equal."""
    head = ["method", *(f"{who}: kills, resumed, equal" for who in WHO), "runs", "equal"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for method in [*METHODS, "all"]:
        mine = [trial for trial in trials if method in (trial.method, "all")]
        cells = [", ".join(map(str, counts(mine, who))) for who in WHO]
        equal = sum(not trial.failure for trial in mine)
        lines.append(f"| {method} | {' | '.join(cells)} | {len(mine)} | {equal} |")
    return "\n".join(lines)


def counts(trials: list[Trial], who: str) -> tuple[int, int, int]:
    """Kills, resumed ones, and those of runs that ended equal."""
    kills = [(kill, trial) for trial in trials for kill in trial.kills if kill.who == who]
    resumed = sum(kill.resumed for kill, _ in kills)
    return len(kills), resumed, sum(not trial.failure for _, trial in kills)


def plot(trials: list[Trial], path: Path) -> None:
    """When the signals came: seconds after the start of a process, over the rounds that were
    whole."""
    figure = Figure(figsize=(2.7 * len(METHODS), 3), layout="constrained")
    panels = figure.subplots(1, len(METHODS), sharey=True)
    for axes, method in zip(panels, METHODS, strict=True):
        for trial in (trial for trial in trials if trial.method == method):
            for kill in trial.kills:
                place = kill.rounds + 0.2 * (WHO.index(kill.who) - 1)
                mark = "x" if trial.failure else "o"
                axes.plot(kill.seconds, place, mark, color=COLORS[1 + WHO.index(kill.who)], ms=4)
        axes.set_title(method, loc="left", fontsize=10)
        axes.set_xlabel("seconds after a start")
        bare(axes)
    panels[0].set_ylabel("whole rounds at the kill")
    dots = [Line2D([], [], ls="", marker="o", color=COLORS[1 + i]) for i in range(len(WHO))]
    cross = Line2D([], [], ls="", marker="x", color="black")
    labels = ["the parent", "a worker", "all", "the run was lost or differs"]
    figure.legend([*dots, cross], labels, ncols=4, loc="outside lower center", frameon=False)
    save(figure, path)


def main() -> None:
    """Kill, compare, and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("crash"))
    given = parser.parse_args()
    torch.set_num_threads(1)  # processes are forked from this one
    began, trials = time.monotonic(), list[Trial]()
    with tempfile.TemporaryDirectory() as folder:
        arena = Arena(Path(folder), given.seed)
        while (left := given.kills - sum(len(trial.kills) for trial in trials)) > 0:
            number, place = divmod(len(trials), len(METHODS))
            trials.append(arena.trial(METHODS[place], number, left))
            last = trials[-1]
            print(f"{last.method}: {len(last.kills)} kills, {last.failure or 'equal'}", flush=True)
    print(f"\n{table(trials)}\n\n{time.monotonic() - began:.0f} s")
    found = [asdict(trial) for trial in trials]
    given.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    plot(trials, given.out.with_suffix(".png"))
    sys.exit(any(trial.failure for trial in trials))


if __name__ == "__main__":
    main()
