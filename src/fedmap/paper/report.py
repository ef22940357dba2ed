"""The files that a reader gets of a study: numbers, tables, figures, and a page that shows them."""

from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.paper.study import Choice, Report, Row, Study, from_csv, to_csv
from fedmap.report import plots
from fedmap.simulate.folder import write_atomically


def write_report(
    study: Study, name: str, choice: Choice, rows: list[Row], folder: Path
) -> list[Path]:
    """Numbers, tables, figures and a page that shows them, below the folder."""
    if not rows:
        raise FedmapError(f"study {name} has no finished work to report")
    stem = folder / f"{name}-{choice.scale}"
    numbers = stem.with_suffix(".csv")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(numbers, to_csv(rows).encode())
    written = [numbers]
    report = study.report(from_csv(numbers))
    for title, table in report.tables.items():
        for ending, text in (
            (".md", table.markdown()),
            (".csv", table.csv()),
            (".tex", table.latex()),
        ):
            path = folder / f"{stem.name}-{title}{ending}"
            write_atomically(path, text.encode())
            written.append(path)
    for title, figure in report.figures.items():
        written += [
            plots.save(figure, folder / f"{stem.name}-{title}{ending}", dpi=200)
            for ending in (".png", ".svg")
        ]
    page = stem.with_suffix(".md")
    write_atomically(page, as_page(study, stem.name, study.cuts(choice.scale), report).encode())
    return [*written, page]


def as_page(study: Study, stem: str, cuts: list[str], report: Report) -> str:
    """The report as Markdown, with its figures beside it."""
    parts = [f"# {study.line}", f"{study.paper} of the paper. " + said(cuts)]
    parts += ["\n".join(f"- {finding}" for finding in report.findings)] if report.findings else []
    parts += [f"**{table.caption}**\n\n{table.markdown()}" for table in report.tables.values()]
    parts += [f"![{title}]({stem}-{title}.png)" for title in report.figures]
    return "\n\n".join(parts) + "\n"


def said(cuts: list[str]) -> str:
    return f"Smaller than the paper: {', '.join(cuts)}." if cuts else "At the paper's scale."
