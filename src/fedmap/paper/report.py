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
    stem = f"{name}-{choice.scale}"
    folder.mkdir(parents=True, exist_ok=True)
    numbers, page = folder / f"{stem}.csv", folder / f"{stem}.md"
    write_atomically(numbers, to_csv(rows).encode())
    report, written = study.report(from_csv(numbers)), [numbers]
    for title, table in report.tables.items():
        written += table.write(folder / f"{stem}-{title}")
    for title, figure in report.figures.items():
        for ending in (".png", ".svg"):
            written.append(plots.save(figure, folder / f"{stem}-{title}{ending}", dpi=200))
    write_atomically(page, as_page(study, stem, study.cuts(choice.scale), report).encode())
    return [*written, page]


def as_page(study: Study, stem: str, cuts: list[str], report: Report) -> str:
    """The report as Markdown, with its figures beside it."""
    parts = [f"# {study.line}", f"{study.paper} of the paper. {size_in_words(cuts)}"]
    parts.append(bullets(report))
    parts += [f"**{table.caption}**\n\n{table.markdown()}" for table in report.tables.values()]
    parts += [f"![{title}]({stem}-{title}.png)" for title in report.figures]
    return "\n\n".join(part for part in parts if part) + "\n"


def bullets(report: Report) -> str:
    """Findings and notes as a list."""
    return "\n".join(f"- {sentence}" for sentence in report.sentences())


def size_in_words(cuts: list[str]) -> str:
    """How large a study is, beside the paper's."""
    return f"Smaller than the paper: {', '.join(cuts)}." if cuts else "At the paper's scale."
