"""Feeds millions of damaged inputs to everything that reads what others wrote (the targets of
`tests/fuzz/targets.py`), guided by which code they reach. Needs the extra `fuzz`; `make fuzz`.

    python scripts/fuzz.py [--seconds 60] [--only npz "stopped run"] [--out runs/fuzz]

Each target has a process of its own. An input that ends in anything but a value or a FedmapError,
takes longer than two seconds or needs more than 2 GB is kept in OUT, with what happened. At the end
stands a table for docs/reliability.md; the exit code is 1 where something was found."""

import argparse
import hashlib
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLOW = 2.0  # seconds that an input may take
HANGS = 20  # seconds after which the process is ended
MOST_MEMORY = 2048  # MB, with torch and all of fedmap loaded
LONGEST = 8192  # bytes of an input


def fuzz(name: str, seconds: int, out: Path) -> None:
    """The process of one target; it does not return."""
    import atheris

    with atheris.instrument_imports(include=["fedmap"]):
        from tests.fuzz import targets
    known: set[str] = set()

    def try_one(content: bytes) -> None:
        began = time.monotonic()
        try:
            targets.survives(name, content)
        except Exception:
            keep(out, name, content, traceback.format_exc(), known)
        taken = time.monotonic() - began
        if taken > SLOW:
            keep(out, name, content, f"slow: {taken:.1f} s", known)

    with tempfile.TemporaryDirectory() as folder:
        corpus, tokens = Path(folder, "corpus"), Path(folder, "tokens")
        corpus.mkdir()
        for number, seed in enumerate(targets.TARGETS[name].seeds()):
            (corpus / str(number)).write_bytes(seed)
        quoted = ("".join(f"\\x{byte:02x}" for byte in token) for token in targets.TOKENS)
        tokens.write_text("".join(f'"{token}"\n' for token in quoted))
        options = [
            f"-max_total_time={seconds}", f"-timeout={HANGS}", f"-rss_limit_mb={MOST_MEMORY}",
            f"-max_len={LONGEST}", f"-dict={tokens}", f"-artifact_prefix={out}/", "-seed=1",
            "-print_final_stats=1",
        ]  # fmt: skip
        atheris.Setup([sys.argv[0], *options, str(corpus)], try_one)
        atheris.Fuzz()


def keep(out: Path, name: str, content: bytes, what: str, known: set[str]) -> None:
    """Write an input down, the first one of each kind."""
    frames = re.findall(r"/(fedmap/\S+|tests/fuzz/\S+)\", line (\d+)", what)
    kind = f"{what.strip().splitlines()[-1].partition(':')[0]} {frames[-1:]}"
    if kind in known:
        return
    known.add(kind)
    digest = hashlib.sha256(content).hexdigest()[:8]
    path = out / f"{name.replace(' ', '-')}-{digest}"
    path.write_bytes(content)
    path.with_suffix(".txt").write_text(what)


def row(name: str, seconds: int, out: Path) -> list[str]:
    """A target's line of the table, after its process has ended."""
    before = set(out.iterdir())
    command = [sys.executable, __file__, "--out", str(out), "--seconds", str(seconds)]
    began = time.monotonic()
    done = subprocess.run([*command, "--target", name], capture_output=True, cwd=ROOT)
    log = done.stderr.decode(errors="replace")
    found = sorted(path.name for path in set(out.iterdir()) - before if path.suffix != ".txt")
    if done.returncode and not found:
        (out / f"{name.replace(' ', '-')}-log").write_text(log)
        found = [f"ended with exit code {done.returncode}"]
    tried = re.search(r"number_of_executed_units: (\d+)", log)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    peak = re.search(r"peak_rss_mb: +(\d+)", log)
    return [
        name,
        f"{int(tried[1]):,}" if tried else "?",
        f"{time.monotonic() - began:.0f}",
        peak[1] if peak else str(memory),
        ", ".join(found) or "nothing",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--only", nargs="+", help="names of targets")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="for what is found")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    out = given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if given.target:
        fuzz(given.target, given.seconds, out)
    from tests.fuzz.targets import TARGETS

    print("| target | inputs | seconds | memory MB | found |\n| --- | --- | --- | --- | --- |")
    rows = []
    for name in given.only or TARGETS:
        rows.append(row(name, given.seconds, out))
        print(f"| {' | '.join(rows[-1])} |", flush=True)
    sys.exit(any(line[-1] != "nothing" for line in rows))


if __name__ == "__main__":
    main()
