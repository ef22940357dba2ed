"""Tables: of any cells as Markdown, CSV and LaTeX; and the comparison of methods by both accuracies
over one or more seeds."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from fedmap.errors import FedmapError
from fedmap.notebook import html_table
from fedmap.simulate.choose import score
from fedmap.simulate.folder import write_atomically
from fedmap.simulate.result import STEADY, Result

# What is shown: of the global model that a run leaves, of its last rounds, and of all clients'
# personal models, among all classes and among the client's own.
COLUMNS = {
    "global_accuracy": "global",
    f"global_accuracy_last_{STEADY}": f"global, last {STEADY}",
    "personal_accuracy_all_clients": "personal",
    "personal_accuracy_observed_all_clients": "own classes",
}
# What scripts get besides.
NUMBERS = (
    *COLUMNS,
    *("personal_accuracy", f"personal_accuracy_last_{STEADY}"),
    *("personal_accuracy_observed", f"personal_accuracy_observed_last_{STEADY}"),
    *("global_balanced_accuracy", "global_macro_f1"),
    *("personal_balanced_accuracy", "personal_macro_f1"),
    *("best_round", "global_accuracy_validation", "personal_accuracy_validation"),
)

LATEX = {
    "\\": r"\textbackslash{}",
    "−": "$-$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\n": " ",
} | {letter: f"\\{letter}" for letter in "%&_#${}"}
# A bar would end the cell, a line break the line, and an angle begin HTML.
MARKDOWN = {"|": r"\|", "\n": " ", "<": "&lt;"}


class Table(NamedTuple):
    """Cells as they are shown."""

    caption: str
    head: list[str]
    lines: list[list[str]]

    def markdown(self) -> str:
        """The cells as a Markdown table, without the caption."""
        lines = [self.head, ["---"] * len(self.head), *self.lines]
        return "".join(f"| {' | '.join(printed(c, MARKDOWN) for c in line)} |\n" for line in lines)

    def csv(self) -> str:
        """The cells with commas between them, without the caption."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.lines])
        return text.getvalue()

    def html(self) -> str:
        """The cells for a notebook."""
        return html_table(self.caption, self.head, self.lines)

    def latex(self) -> str:
        """A table for a paper, with the rules of the package booktabs."""
        lines = [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{printed(self.caption, LATEX)}}}",
            r"\begin{tabular}{l" + "r" * (len(self.head) - 1) + "}",
            r"\toprule",
            latex_line(self.head),
            r"\midrule",
            *map(latex_line, self.lines),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
        return "\n".join(lines) + "\n"

    def write(self, stem: Path) -> list[Path]:
        """The table in three files, as Markdown, CSV and LaTeX: stem.md and so on."""
        texts = {".md": self.markdown(), ".csv": self.csv(), ".tex": self.latex()}
        written = [stem.with_name(stem.name + ending) for ending in texts]
        for path, text in zip(written, texts.values(), strict=True):
            try:
                write_atomically(path, text.encode())
            except OSError as wrong:
                raise FedmapError(f"cannot write the table {path}: {wrong.strerror}") from None
        return written


def printed(text: str, marks: dict[str, str]) -> str:
    """The text with a language's own letters written so that they are printed."""
    return "".join(marks.get(letter, letter) for letter in text)


def latex_line(cells: list[str]) -> str:
    """One line of a LaTeX table."""
    return " & ".join(printed(cell, LATEX) for cell in cells) + r" \\"


class Row(NamedTuple):
    """One method's numbers: a cell for each column, and the seconds that a round takes. The rest is
    there where it is known: the score on held-out samples, and what clients gain over training
    alone."""

    method: str
    cells: list[str]
    seconds: str
    held_out: str = ""
    gain: str = ""
    losers: str = ""


def percent(values: Sequence[float | None]) -> str:
    """Mean and, over several seeds, standard deviation in per cent; a dash where there is no such
    number."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return "-"
    return f"{mean(known):.1f}" + (f" ± {stdev(known):.1f}" if len(known) > 1 else "")


def seconds(runs: list[Result]) -> str:
    """The mean over all rounds of all runs; a dash where there is no run."""
    times = [record["seconds"] for run in runs for record in run.rounds]
    return f"{mean(times):.2f}" if times else "-"


def rows(results: dict[str, list[Result]], columns: Iterable[str] = COLUMNS) -> list[Row]:
    """One row for each method, from its runs (one for each seed)."""
    names = list(columns)
    return [
        Row(
            method,
            [percent([run.final.get(name) for run in runs]) for name in names],
            seconds(runs),
            held_out(runs),
        )
        for method, runs in results.items()
    ]


def held_out(runs: list[Result]) -> str:
    """The score by which the best round was chosen; nothing where there is none."""
    scores = [score(run.final) for run in runs]
    return percent(scores) if any(value is not None for value in scores) else ""


MORE = {"held_out": "held out", "gain": "gain over {}", "losers": "clients that lose"}


def as_table(
    rows: list[Row],
    caption: str = "",
    heads: Iterable[str] = COLUMNS.values(),
    baseline: str = "local",
) -> Table:
    """The rows under their heads, with what is known of any row besides."""
    more = [name for name in MORE if any(getattr(row, name) for row in rows)]
    head = ["method", *heads, *(MORE[name].format(baseline) for name in more), "s/round"]
    lines = [
        [row.method, *row.cells, *(getattr(row, name) or "-" for name in more), row.seconds]
        for row in rows
    ]
    return Table(caption, head, lines)


def left_out(results: dict[str, list[Result]]) -> list[str]:
    """For each method whose runs left uploads out: how many, and the first with its reason."""
    lines = []
    for method, runs in results.items():
        found = [(run, r["round"], one) for run in runs for r in run.rounds for one in _out(r)]
        if found:
            run, round, one = found[0]
            many = "1 upload was" if len(found) == 1 else f"{len(found)} uploads were"
            who = run.final["client_names"][one["client"]]
            lines.append(f"{method}: {many} left out ({who} in round {round}: {one['reason']})")
    return lines


def _out(record: dict[str, Any]) -> list[dict[str, Any]]:
    return list(record.get("left_out", ()))


def as_json(results: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """The same for scripts: one entry for each run."""
    return [
        {"method": method, "seed": run.settings.seed, "folder": str(run.folder)}
        | {name: run.final.get(name) for name in NUMBERS}
        | {"left_out": sum(len(_out(record)) for record in run.rounds)}
        for method, runs in results.items()
        for run in runs
    ]
