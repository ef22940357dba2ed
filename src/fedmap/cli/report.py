"""The command `report`: a page of runs in a file, or served while they go on."""

from pathlib import Path
from typing import Annotated, Any

import typer

from fedmap.errors import FedmapError


def option(*names: str, help: str) -> Any:
    """An option without its default in the help."""
    return typer.Option(*names, help=help, show_default=False)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, or of comparisons and sweeps.",
            metavar="RUN|FOLDER...",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, option("--out", "-o", help="The page to write (report.html).")
    ] = None,
    baseline: Annotated[
        str | None,
        option(
            "--baseline",
            help="What clients are compared with: one of the methods, or global for each run's own "
            "global model (local, else fedavg, else global).",
        ),
    ] = None,
    serve: Annotated[
        bool,
        option("--serve", help="Write nothing; show the page in a browser while runs go on."),
    ] = False,
    port: Annotated[
        int | None, option("--port", help="With --serve: the port on this machine (any).")
    ] = None,
) -> None:
    """Write one HTML page of runs: accuracies over rounds, who gains and who loses, classes,
    proxies, cost, settings. Nothing in it comes from the network.

    The tables lie beside it as Markdown, CSV and LaTeX. Runs that are not finished are shown up to
    their last round. For example: fedmap report runs/compare -o report.html"""
    if serve:
        if out is not None:
            raise FedmapError("--serve writes no file; leave --out away, or leave --serve away")
        serve_until_stopped(runs, baseline, port or 0)
        return
    if port is not None:
        raise FedmapError("--port is for --serve; give both")
    from fedmap.report.page import write_report

    written = write_report(*runs, out=out or Path("report.html"), baseline=baseline)
    print(written)
    print(f"tables: {written.with_name(written.stem)}-*.md, .csv and .tex")


def serve_until_stopped(runs: list[Path], baseline: str | None, port: int) -> None:
    """Ctrl-C and SIGTERM end it in order."""
    from fedmap.report.page.serve import HOST, server
    from fedmap.signals import Stopped

    with server(runs, baseline, port) as serving:
        print(f"http://{HOST}:{serving.server_address[1]}/  (Ctrl-C ends it)", flush=True)
        try:
            serving.serve_forever(poll_interval=0.2)
        except (KeyboardInterrupt, Stopped):
            print("stopped")
