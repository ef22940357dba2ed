"""What do the changes since another checkout cost? A LeNet round of 20 clients, both side by side.

    python benchmarks/since.py CHECKOUT [--methods fedavg,map] [--repeats 10]

Both versions run in turns, in processes of their own with one core each; the first rounds warm up.
Prints, for each method, this version's seconds a round over the other's: wall clock and processor
time of the fastest round, as the median over the pairs."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import fedmap

HERE = Path(__file__).resolve().parents[1]
ROUNDS, WARM_UP = 12, 2


def fastest_round(method: str) -> tuple[float, float]:
    """Of a run: the least seconds that a round takes, by the clock and of the processor."""
    federation = fedmap.partition(fedmap.load("fashion-mini"), 100, seed=0)
    marks: list[tuple[float, float]] = []

    def on_round(record: object) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        marks.append((time.perf_counter(), used.ru_utime + used.ru_stime))

    how: dict[str, Any] = {
        "net": "lenet",
        "rounds": ROUNDS,
        "fraction": 0.2,
        "epochs": 2,
        "workers": 1,
    }
    with tempfile.TemporaryDirectory() as folder:
        fedmap.run(method, federation, out=Path(folder) / "run", on_round=on_round, **how)
    rounds = list(zip(marks[WARM_UP - 1 :], marks[WARM_UP:], strict=False))
    clock, processor = (min(after[i] - before[i] for before, after in rounds) for i in (0, 1))
    return clock, processor


def measured(checkout: Path, method: str) -> tuple[float, float]:
    """The same, by the code of a checkout in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, str(checkout), "--methods", method, "--one"],
        env=os.environ | {"PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        text=True,
    )
    clock, processor = json.loads(done.stdout.splitlines()[-1])
    return clock, processor


def main() -> None:
    """The ratios of all methods."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("checkout", type=Path, help="folder of the other version")
    parser.add_argument("--methods", default="fedavg,map")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(fastest_round(given.methods)))
        return
    for method in given.methods.split(","):
        ratios = []
        for _ in range(given.repeats):
            before, now = measured(given.checkout, method), measured(HERE, method)
            ratios.append([n / b for n, b in zip(now, before, strict=True)])
        clock, processor = (median(ratio[i] for ratio in ratios) for i in (0, 1))
        print(f"{method}: {clock:.3f} by the clock, {processor:.3f} of the processor")


if __name__ == "__main__":
    main()
