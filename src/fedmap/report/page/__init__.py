"""One self-contained HTML page of runs: how good each method is, whom it helps, and what missing
classes do to it."""

from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.report.page.build import Contents, page
from fedmap.report.page.found import of_results, shown
from fedmap.simulate.folder import write_atomically
from fedmap.simulate.result import Result

__all__ = ["Contents", "of_results", "write_page", "write_report"]


def write_report(
    *runs: Path | str | Result,
    out: Path | str = "report.html",
    baseline: str | None = None,
) -> Path:
    """Write one HTML page of some runs, with its tables as Markdown, CSV and LaTeX beside it; where
    the page is.

    A run is its folder, or its result; a folder of several (a comparison, a sweep) stands for all
    in it. Runs that are not finished are shown up to their last round. Clients are compared with
    the baseline: a method among these runs, or `global` for each run's own global model; `local`,
    then `fedavg` if it is not given. It needs the extra `report`."""
    return write_page(Contents(shown(runs), baseline), Path(out))


def write_page(contents: Contents, path: Path) -> Path:
    """The page and its tables; the path."""
    if not path.name:  # . and / and nothing at all
        raise FedmapError(f"cannot write the report {path}: it is a folder")
    text = page(contents)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    except OSError as wrong:
        raise FedmapError(f"cannot write the report {path}: {wrong.strerror}") from None
    for name, table in contents.tables.items():
        table.write(path.with_name(f"{path.stem}-{name}"))
    return path
