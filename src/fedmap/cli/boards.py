"""The command `leaderboard`. The work is done in `fedmap.experiment.leaderboard`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmap.cli.options import DataDir, Out, Quiet, Workers
from fedmap.cli.parsing import cores, printable


def leaderboard(
    board: Annotated[
        str, typer.Option("--board", help="Which one: fashion-mini, cifar-10 or fashion-mnist.")
    ] = "fashion-mini",
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            help="Train this method on the board's federations and show its place; FILE.py:CLASS "
            "for one of your own. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Train all methods again.", show_default=False)
    ] = False,
    data_dir: DataDir = None,
    workers: Workers = None,
    out: Out = None,
    quiet: Quiet = False,
) -> None:
    """All methods on the same federations, ranked by the global and the personal model at once.

    What was measured comes with fedmap; nothing is trained unless it is asked for. Stopped and
    started again, it skips what is done. For example: fedmap leaderboard --method ./mine.py:Mine"""
    from fedmap.cli import show
    from fedmap.cli.train import stoppable
    from fedmap.experiment import leaderboard as boards
    from fedmap.report.plots import save

    chosen, folder = boards.find_board(board), out or Path("runs/leaderboard")
    methods = [*(method or []), *(boards.contenders(board) if again else [])] or None
    how: dict[str, Any] = {"workers": workers or cores(), "data_dir": data_dir}
    with (
        stoppable(folder, "the same command"),
        show.Display(quiet or methods is None).shown() as display,
    ):
        places = boards.leaderboard(board, methods, out=folder, on_progress=display, **how)
    table = boards.table(places, f"{chosen.line}; accuracy in %, time and bytes beside FedAvg's")
    show.cells(table)
    if methods is not None:
        own = [place.method for place in places if place.method not in boards.contenders(board)]
        picture = save(boards.figure(places, own), folder / f"{board}.png")
        for path in (*table.write(folder / board), picture):
            print(printable(f"written: {path}"))
