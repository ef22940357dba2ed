"""`fedmap watch`: runs as they go on, also those that were started elsewhere."""

import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fedmap.cli.parsing import printable, say
from fedmap.cli.show import duration
from fedmap.errors import FedmapError
from fedmap.experiment.lists import OVERVIEW
from fedmap.signals import Stopped
from fedmap.simulate.look import Look
from fedmap.simulate.progress import percent

SECONDS = 1.0  # between two looks
PATIENCE = 15.0  # seconds without any living run after which an experiment counts as stopped
BLOCKS = "▁▂▃▄▅▆▇█"
MOST_RUNS = 6  # that are shown in full; of the others one line
CURVES = {"global_accuracy": "global", "personal_accuracy": "personal"}


def looks(path: Path) -> list[Look]:
    """The run in a folder, or the runs of an experiment's folder."""
    if (path / "run.toml").exists():
        return [Look(path)]
    if (path / OVERVIEW).exists():
        return [
            Look(path / (entry["folder"] or "-"), entry["label"], entry["rounds"])
            for entry in listed(path / OVERVIEW)
        ]
    return [Look(file.parent) for file in sorted(path.glob("*/run.toml"))] or [Look(path)]


def listed(file: Path) -> list[dict[str, Any]]:
    """The runs that an experiment has noted."""
    try:
        found = json.loads(file.read_text())
        return [{name: one[name] for name in ("label", "rounds", "folder")} for one in found]
    except (ValueError, TypeError, KeyError) as wrong:
        raise FedmapError(f"{file} is damaged: {wrong}") from None


def spark(values: list[float], width: int) -> str:
    """A curve in one line: each letter is the mean of some rounds, between the lowest and the
    highest."""
    count = min(width, len(values))
    ends = [round(k * len(values) / count) for k in range(count + 1)] if count else []
    parts = [values[a:b] for a, b in pairwise(ends)]
    means = [sum(part) / len(part) for part in parts]
    if not means:
        return ""
    low, high = min(means), max(means)
    top = len(BLOCKS) - 1
    step = top / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round(step * (m - low))] for m in means)


def lines(look: Look, width: int) -> list[str]:
    """All about one run."""
    done = len(look.records)
    head = f"{look.label or look.path}  {look.state}  round {done}/{look.rounds}"
    if look.state == "waiting":
        return [f"{look.label or look.path}  waiting to begin"]
    left = look.seconds_left
    if look.state == "running" and left is not None:
        head += f"  {duration(left)} left"
    found = [head]
    for name, words in CURVES.items():
        curve = look.curve(name)
        if curve:
            numbers = f"  {words:8} {percent(curve[-1])} "
            found.append(numbers + spark(curve, max(width - len(numbers), 8)))
    if look.best is not None:
        found.append(f"  best round so far: {look.best.round} ({look.best.why})")
    if look.left_out:
        found.append(f"  bad uploads left out: {look.left_out}")
    return found + [f"  {sentence}" for sentence in [look.sentence()] if sentence]


def picture(found: list[Look], width: int) -> list[str]:
    """One run in full; of several those that go on, and how many there are of the others."""
    if len(found) == 1:
        return lines(found[0], width)
    states = [look.state for look in found]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    shown = [look for look in found if look.state not in ("waiting", "done")]
    text = [f"{len(found)} runs: {counts}"]
    for look in found:
        if look.state == "done":
            last = look.records[-1] if look.records else {}
            numbers = [f"{words} {percent(last.get(name))}" for name, words in CURVES.items()]
            text.append(f"{look.label}  done  {'  '.join(numbers)}")
    for look in shown[:MOST_RUNS]:
        text += lines(look, width)
    more = len(shown) - MOST_RUNS
    return text + ([f"and {more} more"] if more > 0 else [])


def watch(
    path: Path,
    once: bool = False,
    console: Console | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Show what happens in a folder until it has ended; the exit code."""
    console = console or Console(highlight=False)
    try:
        if console.is_terminal and not once:
            with Live(console=console, auto_refresh=False) as live:
                return followed(path, on_live(live), console, sleep, clock)
        return followed(path, plainly(console), console, sleep, clock, once)
    except (KeyboardInterrupt, Stopped):
        say("\nno longer watched; what was going on goes on")
        return 130


def on_live(live: Live) -> Callable[[list[str]], None]:
    """Shows the text in place of the last one."""
    return lambda text: live.update(rendered(text), refresh=True)


def rendered(text: list[str]) -> RenderableType:
    """Text that goes on in the next line where it is too long."""
    return Group(*(Text(printable(line), overflow="fold") for line in text))


def plainly(console: Console) -> Callable[[list[str]], None]:
    """Prints what has changed since the last look."""
    before: list[str] = []

    def show(text: list[str]) -> None:
        if text != before:
            before[:] = text
            for line in text:
                console.print(printable(line), markup=False, soft_wrap=True)

    return show


def followed(
    path: Path,
    show: Callable[[list[str]], None],
    console: Console,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    once: bool = False,
) -> int:
    """Look again and again. 0 when all is done, 1 where something was stopped or has diverged."""
    if once and not path.is_dir():
        raise FedmapError(f"there is no folder {path}")
    lived = clock()
    while True:
        found = looks(path)
        show(picture(found, console.width))
        ended = all(look.over for look in found)
        if ended or once:
            return int(any(look.state in ("stopped", "diverged") for look in found))
        moving = any(look.state in ("running", "unknown") for look in found)
        nothing_yet = all(look.state == "waiting" for look in found)
        if moving or nothing_yet:
            lived = clock()
        elif len(found) == 1 or clock() - lived > PATIENCE:
            if len(found) > 1:
                console.print("stopped; go on with the command that began it", highlight=False)
            return 1
        sleep(SECONDS)
