"""Tables: of any cells as Markdown, CSV and LaTeX; and the comparison of methods by both accuracies
over one or more seeds."""

import csv
import io
from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from fedmap.simulate import Result
from fedmap.simulate.result import STEADY

COLUMNS = {
    "global_accuracy": "global, last round",
    f"global_accuracy_last_{STEADY}": f"global, last {STEADY}",
    "personal_accuracy": "personal, last round",
    f"personal_accuracy_last_{STEADY}": f"personal, last {STEADY}",
    "personal_accuracy_all_clients": "personal, all clients",
}


class Table(NamedTuple):
    """Cells as they are shown."""

    caption: str
    head: list[str]
    lines: list[list[str]]

    def markdown(self) -> str:
        return "".join(
            "| " + " | ".join(line) + " |\n"
            for line in (self.head, ["---"] * len(self.head), *self.lines)
        )

    def csv(self) -> str:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.head, *self.lines])
        return text.getvalue()

    def latex(self) -> str:
        """A table for a paper, with the rules of the package booktabs."""
        symbols = {
            "\\": r"\textbackslash{}",
            "−": "$-$",
            "±": r"$\pm$",
            "α": r"$\alpha$",
            "λ": r"$\lambda$",
        }
        symbols |= {c: f"\\{c}" for c in "%&_#${}"}

        def row(cells: list[str]) -> str:
            return " & ".join("".join(symbols.get(c, c) for c in cell) for cell in cells) + r" \\"

        rules = [r"\toprule", row(self.head), r"\midrule", *map(row, self.lines), r"\bottomrule"]
        inside = [r"\begin{tabular}{l" + "r" * (len(self.head) - 1) + "}", *rules, r"\end{tabular}"]
        return (
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    r"\caption{" + row([self.caption])[:-3] + "}",
                    *inside,
                    r"\end{table}",
                ]
            )
            + "\n"
        )


class Row(NamedTuple):
    """One method's numbers: a cell for each of COLUMNS, and the seconds a round takes."""

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


def rows(results: dict[str, list[Result]]) -> list[Row]:
    """One row a method, from its runs (one for each seed)."""
    return [
        Row(
            method,
            [percent([run.final[name] for run in runs]) for name in COLUMNS],
            f"{mean(record['seconds'] for run in runs for record in run.rounds):.2f}",
        )
        for method, runs in results.items()
    ]


def markdown(table: list[Row]) -> str:
    return Table(
        "",
        ["method", *COLUMNS.values(), "s/round"],
        [[row.method, *row.cells, row.seconds] for row in table],
    ).markdown()


def as_json(results: dict[str, list[Result]]) -> list[dict[str, Any]]:
    """The same for scripts: one entry a run."""
    return [
        {
            "method": method,
            "seed": run.settings.seed,
            "folder": str(run.folder) if run.folder else None,
        }
        | {name: run.final[name] for name in COLUMNS}
        for method, runs in results.items()
        for run in runs
    ]
