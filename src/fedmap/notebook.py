"""What a notebook shows: tables as HTML, data frames, and a progress bar (which scripts can have
too)."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from fedmap.errors import FedmapError

Move = Callable[[float, str], None]  # to how far it is, and what to say beside it


def html_table(caption: str, head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    """A table, every cell of which is text and nothing else."""

    def row(kind: str, cells: Sequence[object]) -> str:
        return "<tr>" + "".join(f"<{kind}>{escape(str(c))}</{kind}>" for c in cells) + "</tr>"

    body = "".join(row("td", line) for line in lines)
    titles = f"<thead>{row('th', head)}</thead>" if head else ""
    return f"<table><caption>{escape(caption)}</caption>{titles}<tbody>{body}</tbody></table>"


def frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """Records as a pandas data frame."""
    try:
        import pandas
    except ImportError:
        raise FedmapError("to_pandas needs pandas; install it with: pip install pandas") from None
    return pandas.DataFrame([dict(record) for record in records])


def in_notebook() -> bool:
    """Does this process answer to a notebook?"""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def wanted(progress: bool | None) -> bool:
    """Is a bar shown? Where nothing is said, in a notebook."""
    return in_notebook() if progress is None else progress


@contextmanager
def progress_bar(label: str, total: float, progress: bool | None) -> Iterator[Move]:
    """A bar while the work inside goes on; `progress` says whether, None: in a notebook."""
    if not wanted(progress):
        yield lambda done, now: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[now]}")
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
        task = bars.add_task(escape_markup(label), total=total, now="")
        yield lambda done, now: bars.update(task, completed=done, now=escape_markup(now))


def escape_markup(text: str) -> str:
    """Text that rich shows as it is."""
    from rich.markup import escape

    return escape(text)
