"""Runs the commands of results/queue.toml one after the other, and gathers their rows in results/.

    python scripts/run_queue.py [--runs runs] [--only TEXT] [--report]

One worker at the lowest priority. Stopped at any moment and started again, it goes on where it was:
a study skips its finished runs and goes on with one that was begun. What has its rows in
results/STUDY-SCALE.csv, or where a leaderboard is kept, is not made again, also on another machine;
take rows out to have them made anew. A study's rows are gathered every ten minutes too, so that a
machine that is lost takes little with it. With --only, those commands alone that have the text in
them. With --report nothing is run: what is done so far is gathered.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from itertools import chain, pairwise
from pathlib import Path

from fedmap.experiment import leaderboard as boards
from fedmap.paper.study import Row, from_csv, to_csv
from fedmap.report.clients import ALONE
from fedmap.simulate.folder import write_atomically

# the columns of a CSV that say which piece of work a row belongs to
WORK = (
    "column", "method", "group", "seed", "clip", "net", "observed", "start", "model", "trained_on"
)  # fmt: skip

WHILE = 600  # seconds from one gathering to the next


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--only", default="", metavar="TEXT", help="commands that have it in them")
    parser.add_argument("--report", action="store_true", help="run nothing; gather what is done")
    given = parser.parse_args()
    os.nice(19)
    every = tomllib.loads((given.results / "queue.toml").read_text())["commands"]
    commands = [command for command in every if given.only in command]
    if not commands:
        sys.exit(f"no command of {given.results / 'queue.toml'} has {given.only!r} in it")
    failed = 0
    for number, command in enumerate(commands, 1):
        began = time.monotonic()
        well = run(command, given.runs, given.results, given.report)
        minutes = (time.monotonic() - began) / 60
        outcome = f"done in {minutes:.0f} min" if well else "no rows" if given.report else "FAILED"
        print(f"[{number}/{len(commands)}] {outcome}: {command}", flush=True)
        failed += not well
    sys.exit(bool(failed) and not given.report)


def run(command: str, runs: Path, results: Path, report: bool) -> bool:
    """Run one command and gather its rows; did it end well?"""
    program, *words = shlex.split(command)
    if program == "python":
        return report or subprocess.run([sys.executable, *words, "--workers", "1"]).returncode == 0
    if words[0] == "leaderboard":
        board = words[words.index("--board") + 1]
        if trained_by(words, board) <= {entry.method for entry in boards.kept(board)}:
            return True
        well = report or fedmap(*words, "--out", str(runs))
        page = str(Path(__file__).with_name("write_leaderboard.py"))
        line = [page, "--collect", str(runs), "--board", board]
        return well and subprocess.run([sys.executable, *line]).returncode == 0
    if report:
        return gathered(words, runs, results)
    with tempfile.TemporaryDirectory() as out:
        study = started(*words, "--known", str(results), "--runs", str(runs), "--out", out)
        try:
            while not ended(study):
                gathered(words, runs, results)
        finally:
            study.terminate()
            study.wait()
    return gathered(words, runs, results) and study.returncode == 0


def trained_by(words: list[str], board: str) -> set[str]:
    """The methods that a command of a leaderboard trains."""
    if "--again" in words:
        return set(boards.contenders(board))
    named = {method for flag, method in pairwise(words) if flag == "--method"}
    return named | {boards.REFERENCE, ALONE}


def gathered(words: list[str], runs: Path, results: Path) -> bool:
    """Gather the rows of a study's finished runs; are there any?"""
    with tempfile.TemporaryDirectory() as out:
        places = ["--known", str(results), "--runs", str(runs), "--out", out]
        well = fedmap(*words, *places, "--report")
        found = Path(out, f"{words[1]}-{words[words.index('--scale') + 1]}.csv")
        if well:
            gather(results / found.name, from_csv(found))
    return well


def fedmap(*words: str) -> bool:
    """One command of fedmap; did it end well?"""
    return started(*words).wait() == 0


def started(*words: str) -> subprocess.Popen[bytes]:
    """One command of fedmap, with one worker."""
    line = [sys.executable, "-m", "fedmap", *words, "--workers", "1", "--quiet"]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL)


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ended within a while."""
    try:
        process.wait(WHILE)
    except subprocess.TimeoutExpired:
        return False
    return True


def gather(path: Path, rows: list[Row]) -> None:
    """Put the rows into a CSV."""
    old = from_csv(path) if path.exists() else []
    write_atomically(path, to_csv(merged(old, rows)).encode())


def merged(old: list[Row], new: list[Row]) -> list[Row]:
    """The old rows, those of the same work as new ones replaced, and the other new ones after them.
    Old rows with other columns are of an older kind and go."""
    if not old or list(old[0]) != list(new[0]):
        return new
    return list(chain(*(grouped(old) | grouped(new)).values()))


def grouped(rows: list[Row]) -> dict[tuple[object, ...], list[Row]]:
    """The rows of each piece of work."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(work_of(row), []).append(row)
    return found


def work_of(row: Row) -> tuple[object, ...]:
    """Which piece of work a row belongs to."""
    return tuple(row[name] for name in WORK if name in row)


if __name__ == "__main__":
    main()
