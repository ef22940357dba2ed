"""docs/leaderboard.md with its pictures, from what is kept of each board.

    python scripts/write_leaderboard.py [--collect RUNS [--board NAME]]

First train: `fedmap leaderboard --again --board NAME --out RUNS`, which can be stopped and started
again. With --collect, the methods that are finished with all seeds of a board (of each, if none is
named) below RUNS take the place of what is kept of them; the others stay. Then the page is written
again."""

import argparse
from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.experiment import leaderboard as boards
from fedmap.experiment.compare import Comparison
from fedmap.experiment.runs import RunWork
from fedmap.methods import variant
from fedmap.report.clients import ALONE
from fedmap.report.plots import save
from fedmap.simulate.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/leaderboard.md"
KEPT = ROOT / "src/fedmap/experiment/boards"
MARK = "<!-- measured -->"


def finished(board: str, runs: Path) -> Comparison:
    """The methods of a board whose runs are all done."""
    chosen, found = boards.BOARDS[board], {}
    for label in boards.contenders(board):
        method, params = variant(label)
        given = chosen.settings | {"method": method, "params": params}
        work = [RunWork(Settings.of(given | {"seed": seed}), label) for seed in chosen.seeds]
        if all(one.done(runs) for one in work):
            found[label] = work
    return Comparison(found, runs)


def collect(board: str, runs: Path) -> None:
    """Keep what is finished of a board, once there is all it is compared with, and what was kept of
    other methods."""
    comparison = finished(board, runs)
    if {boards.REFERENCE, ALONE} <= comparison.runs.keys():
        kept = boards.kept(board)
        others = [one for one in kept if one.method not in comparison.runs]
        KEPT.mkdir(exist_ok=True)
        entries = [*boards.measured(comparison, kept), *others]
        (KEPT / f"{board}.csv").write_text(boards.written(entries))


def section(board: str) -> str:
    """A board on the page: its picture and its table."""
    places = boards.ranking(boards.kept(board))
    chosen = boards.BOARDS[board]
    words = f"## {board}\n\n{chosen.line}.\n"
    command = f"`fedmap leaderboard --again --board {board} --out RUNS`"
    if not places:
        return f"{words}\nNot measured yet: {command}.\n"
    save(boards.figure(places), ROOT / f"docs/images/leaderboard/{board}.png", dpi=90)
    picture = f"![Both goals of every method](images/leaderboard/{board}.png)"
    seeds = f"Seeds {chosen.seeds[0]} to {chosen.seeds[-1]}" if chosen.seeds[1:] else "One seed"
    diverged = [f"{p.method} ({len(chosen.seeds) - len(p.entries)})" for p in places]
    lost = [d for d, p in zip(diverged, places, strict=True) if len(p.entries) < len(chosen.seeds)]
    also = f" Runs that diverged are left out: {', '.join(lost)}." if lost else ""
    there = {place.method for place in places}
    if missing := [name for name in boards.contenders(board) if name not in there]:
        also += f" Not run yet: {', '.join(missing)}."
    table = boards.table(places).markdown()
    return f"{words}\n{picture}\n\n{table}\n{seeds}. Made by {command}.{also}\n"


def page() -> str:
    """The whole page: what is written by hand, then every board."""
    before = PAGE.read_text().partition(MARK)[0]
    return f"{before}{MARK}\n\n" + "\n".join(map(section, boards.BOARDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--collect", type=Path, metavar="RUNS")
    parser.add_argument("--board", choices=boards.BOARDS, help="only this one")
    given = parser.parse_args()
    if given.collect:
        for board in [given.board] if given.board else boards.BOARDS:
            try:
                collect(board, given.collect)
            except FedmapError as sentence:  # of data that is not here
                print(f"{board} stays as it is: {sentence}")
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
