"""The page of the whole reproduction: the paper's claims with our verdicts and reasons, then a
section for each study, from the studies' CSV files alone."""

from pathlib import Path

from fedmap.errors import FedmapError
from fedmap.paper import STUDIES
from fedmap.paper.claims import ORDER, gather
from fedmap.paper.finding import Finding, not_tested
from fedmap.paper.report import bullets, size_in_words
from fedmap.paper.study import SCALES, Row, Scale, from_csv, names_of
from fedmap.report import plots

Tables = dict[tuple[str, Scale], list[Row]]  # the rows of each study at each scale

INTRODUCTION = """# The paper's tables and figures, made again

Every number below comes from runs of this code on the real datasets, collected in
[`results/`](../results); `python scripts/write_reproduction.py` writes this page from them. Each
section names its command, and says what is smaller than in the paper. Tables show the last round,
as the paper does, and the mean of the last ten rounds, which is steadier: single rounds swing by a
point or two. Unless a section says otherwise there is one seed, so differences below about a point
are not resolved. The paper's own numbers are the best of three parameter groups, chosen by the
reported accuracy; ours, where it says *default parameters*, are one run each, with parameters
settled beforehand."""


def write_page(results: Path, reasons: Path, page: Path) -> None:
    """Write the page, and its pictures below `images/reproduction` beside it."""
    tables = read_results(results)
    images = page.parent / "images" / "reproduction"
    parts = [INTRODUCTION, *claims_part(tables, read_reasons(reasons))]
    for (name, scale), rows in tables.items():
        parts.append(section(name, scale, rows, images, page))
    page.write_text("\n\n".join(parts) + "\n")


def read_results(folder: Path) -> Tables:
    """All files STUDY-SCALE.csv, in the order of the claims. The joint look has no file of its
    own: its runs are those of the tables."""
    tables: Tables = {}
    for name in ORDER:
        for scale in SCALES:
            path = folder / f"{'table-1-2' if name == 'joint' else name}-{scale}.csv"
            if path.exists():
                tables[name, scale] = from_csv(path)
    return tables


def read_reasons(path: Path) -> dict[str, str]:
    """The sections of a Markdown page by their headings, each of which must be a claim."""
    found = {}
    for part in path.read_text().split("\n## ")[1:]:
        heading, _, body = part.partition("\n")
        found[heading.strip()] = body.strip()
    unknown = found.keys() - {claim.text for _, claim in gather()}
    if unknown:
        raise FedmapError(f"{path} gives reasons for what is no claim: {', '.join(unknown)}")
    return found


def claims_part(tables: Tables, reasons: dict[str, str]) -> list[str]:
    """The table of all claims, and the reasons of those that have numbers. The largest scale
    decides."""
    lines, explained = ["| claim of the paper | here | numbers |", "| --- | --- | --- |"], []
    for name, claim in gather():
        scales = [scale for scale in SCALES if (name, scale) in tables]
        if not scales:
            lines.append(claim_line(not_tested(claim.text, f"`fedmap study {name}`")))
            continue
        finding = claim.judge(tables[name, scales[-1]])
        source = f"{finding.numbers} ({name}-{scales[-1]})"
        lines.append(claim_line(finding._replace(numbers=source)))
        if claim.text in reasons:
            explained.append(f"**{claim.text}.** {reasons[claim.text]}")
    return ["## Where we differ, and why", "\n".join(lines), *explained]


def claim_line(finding: Finding) -> str:
    """One line of the table of claims."""
    return f"| {finding.statement} | **{finding.shown_verdict()}** | {finding.numbers} |"


def section(name: str, scale: Scale, rows: list[Row], images: Path, page: Path) -> str:
    """One study: what it shows, its command, findings, tables and figures."""
    study = STUDIES[name]
    report = study.report(rows)
    cuts = study.cuts(scale)
    if only_defaults(name, scale, rows):
        cuts = [
            "default parameters instead of the best of three groups, and only the methods below; "
            "all else is as printed"
        ]
    command = f"fedmap study {name} --scale {scale}{options(name, scale, rows)}"
    parts = [f"## {study.line}", f"{study.paper}. {size_in_words(cuts)}", f"```\n{command}\n```"]
    parts.append(bullets(report))
    parts += [f"{table.caption}:\n\n{table.markdown()}" for table in report.tables.values()]
    for title, figure in report.figures.items():
        picture = plots.save(figure, images / f"{name}-{scale}-{title}.png", dpi=110)
        parts.append(f"![{study.line}: {title}]({picture.relative_to(page.parent)})")
    return "\n\n".join(part for part in parts if part)


def only_defaults(name: str, scale: Scale, rows: list[Row]) -> bool:
    """Whether a study that has three groups at this scale was run with default parameters."""
    three_groups = scale == "paper" and name in ("table-1-2", "joint")
    return three_groups and names_of(rows, "group") == ["default"]


def options(name: str, scale: Scale, rows: list[Row]) -> str:
    """The options that lead to these rows, where they are not the scale's own choice."""
    study, text = STUDIES[name], ""
    columns, methods, seeds = (
        names_of([r for r in rows if what in r], what) for what in ("column", "method", "seed")
    )
    if study.columns and columns != list(study.default_columns(scale)):
        text += f' --columns "{"; ".join(columns)}"'
    if study.methods and set(methods) != set(study.methods):
        text += f" --methods {','.join(methods)}"
    if only_defaults(name, scale, rows):
        text += " --defaults"
    if seeds not in ([0], []):
        text += f" --seeds {','.join(map(str, seeds))}"
    return text
