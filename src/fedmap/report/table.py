"""Tables: of any cells as Markdown, CSV and LaTeX; and the comparison of methods by both accuracies
over one or more seeds."""

import csv
import io
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from fedmap.notebook import html_table
from fedmap.simulate.result import STEADY, Result

COLUMNS = {
    "global_accuracy": "global, last round",
    f"global_accuracy_last_{STEADY}": f"global, last {STEADY}",
    "personal_accuracy": "personal, last round",
    f"personal_accuracy_last_{STEADY}": f"personal, last {STEADY}",
    "personal_accuracy_all_clients": "personal, all clients",
}
HEAD = ["method", *COLUMNS.values(), "s/round"]

LATEX = {
    "\\": r"\textbackslash{}",
    "−": "$-$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "λ": r"$\lambda$",
} | {letter: f"\\{letter}" for letter in "%&_#${}"}


class Table(NamedTuple):
    """Cells as they are shown."""

    caption: str
    head: list[str]
    lines: list[list[str]]

    def markdown(self) -> str:
        """The cells as a Markdown table, without the caption."""
        lines = [self.head, ["---"] * len(self.head), *self.lines]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)

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
            rf"\caption{{{latex(self.caption)}}}",
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


def latex(text: str) -> str:
    """The text with LaTeX's own letters written so that they are printed."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def latex_line(cells: list[str]) -> str:
    """One line of a LaTeX table."""
    return " & ".join(map(latex, cells)) + r" \\"


class Row(NamedTuple):
    """One method's numbers: a cell for each of COLUMNS, and the seconds that a round takes."""

    method: str
    cells: list[str]
    seconds: str


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


def rows(results: dict[str, list[Result]]) -> list[Row]:
    """One row for each method, from its runs (one for each seed)."""
    return [
        Row(method, [percent([run.final[name] for run in runs]) for name in COLUMNS], seconds(runs))
        for method, runs in results.items()
    ]


def as_table(rows: list[Row], caption: str = "") -> Table:
    """The rows under their head."""
    return Table(caption, HEAD, [[row.method, *row.cells, row.seconds] for row in rows])


def as_json(results: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """The same for scripts: one entry for each run."""
    return [
        {"method": method, "seed": run.settings.seed, "folder": str(run.folder)}
        | {name: run.final[name] for name in COLUMNS}
        for method, runs in results.items()
        for run in runs
    ]
