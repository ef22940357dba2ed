"""The pages of the whole reproduction, from the studies' CSV files alone: one that has every claim
of the paper with our verdict, and one for each study."""

import argparse
import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from fedmap.errors import FedmapError
from fedmap.methods import variant
from fedmap.paper import STUDIES
from fedmap.paper.claims import ORDER, gather
from fedmap.paper.finding import Finding, not_tested
from fedmap.paper.report import size_in_words
from fedmap.paper.study import SCALES, Choice, Claim, Row, Scale, Study, from_csv, names_of
from fedmap.report import plots

Tables = dict[tuple[str, Scale], list[Row]]  # the rows of each study at each scale
WIDTH = 100  # columns of a line of text
FEW = 5  # names that a sentence may list

INTRODUCTION = """# The paper's claims, tested again

Every number comes from runs of this code on the real datasets, kept in [`results/`](../results).
`python scripts/run_queue.py` makes the runs, `python scripts/write_reproduction.py` these pages.
Proxies, the HPM and what else the words mean: [concepts](concepts.md). Q is the share of clients in
a round, E their epochs. All methods have their defaults unless a group of parameters is named."""

RULES = """## How a verdict is made

- Personal accuracy: difference client by client after the last round, mean ± standard error.
  Global: mean of the last ten rounds, over seeds. Of several columns: the least and the most.
- A difference counts from two standard errors on over hundreds of clients, from 4.3 on over three
  seeds (Student's t, one time in twenty by chance), from 3.5 points on between single runs: twice
  what half of all methods' gains differ from seed to seed on the leaderboard's CIFAR-10.
- Clients of one seed share a model, so their error is too small for other federations: *by seeds
  alone* is what the error over seeds decides. Each page says when its claim holds, or in part.
- A verdict needs three seeds, or one where a run takes over an hour; a failed training is named and
  left out. **Not tested**: the runs, the data or the scale here do not allow a verdict.
- *So far*: some of the methods or columns that the claim is about were not run. *Small scale*: with
  fewer samples, clients and rounds than the paper; each page says what was cut.
- Gradients are cut at length 100, as in the authors' code, unless a page says otherwise."""


class Pages(NamedTuple):
    """Texts by their place below `docs`, and pictures by their names."""

    texts: dict[str, str]
    pictures: dict[str, Figure]


def write_pages(results: Path, reasons: Path, docs: Path) -> None:
    """Write `reproduction.md`, the studies' pages below `reproduction`, and their pictures below
    `images/reproduction`."""
    made = pages(results, reasons)
    for place, text in made.texts.items():
        (docs / place).parent.mkdir(parents=True, exist_ok=True)
        (docs / place).write_text(text)
    for name, figure in made.pictures.items():
        plots.save(figure, docs / "images/reproduction" / name, dpi=110)


def pages(results: Path, reasons: Path) -> Pages:
    """All pages that follow from the CSV files."""
    tables, told = read_results(results), read_reasons(reasons)
    commands = read_commands(results)
    found = Pages({"reproduction.md": overview(tables)}, {})
    for name in ORDER:
        if STUDIES[name].claims() or any(key[0] == name for key in tables):
            found.texts[f"reproduction/{name}.md"] = study_page(name, tables, told, commands, found)
    return found


def read_results(folder: Path) -> Tables:
    """All files STUDY-SCALE.csv, in the order of the claims and from the largest scale down. The
    joint look has no file of its own: its runs are those of the tables."""
    tables: Tables = {}
    for name in ORDER:
        for scale in reversed(SCALES):
            path = folder / f"{'table-1-2' if name == 'joint' else name}-{scale}.csv"
            if path.exists():
                tables[name, scale] = from_csv(path)
    return tables


def read_commands(folder: Path) -> list[str]:
    """The commands of the queue that makes the files."""
    path = folder / "queue.toml"
    return list(tomllib.loads(path.read_text())["commands"]) if path.exists() else []


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


def judge(name: str, claim: Claim, tables: Tables) -> tuple[Finding, Scale | None]:
    """The claim by its study's rows, and the scale that decides: the largest that can."""
    found = [(claim.judge(rows), scale) for (study, scale), rows in tables.items() if study == name]
    tested = [(finding, scale) for finding, scale in found if finding.verdict != "not tested"]
    return [*tested, *found, (not_tested(claim.text, "not run yet"), None)][0]


def overview(tables: Tables) -> str:
    """One screen: each claim with its verdict, one number and the way to its study."""
    lines = ["| claim of the paper | here | in points or as said | study |", "| --- " * 4 + "|"]
    for name, claim in gather():
        finding, scale = judge(name, claim, tables)
        number = finding.short or finding.numbers
        if scale == "small" and finding.verdict != "not tested":
            number += " (small scale)"
        link = f"[{name}](reproduction/{name}.md)"
        lines.append(f"| {claim.text} | **{finding.shown_verdict()}** | {number} | {link} |")
    others = [name for name in dict.fromkeys(study for study, _ in tables) if not claims_of(name)]
    links = ", ".join(f"[{name}](reproduction/{name}.md)" for name in others)
    more = [wrapped(f"Without a claim of their own: {links}.")] if others else []
    return "\n\n".join([INTRODUCTION, "\n".join(lines), *more, RULES]) + "\n"


def claims_of(name: str) -> list[Claim]:
    """What the paper claims in this study."""
    return STUDIES[name].claims()


def study_page(
    name: str, tables: Tables, reasons: dict[str, str], commands: list[str], found: Pages
) -> str:
    """One study: its claims with verdicts and reasons, then each scale."""
    study = STUDIES[name]
    parts = [f"# {study.line}", f"{study.paper} of the paper. [All claims](../reproduction.md)."]
    for claim in claims_of(name):
        finding, _ = judge(name, claim, tables)
        parts.append(f"## {claim.text}: {finding.shown_verdict()}")
        parts.append(wrapped(f"*When it holds:* {claim.condition}"))
        if claim.printed:
            parts.append(wrapped(f"*In the paper's own numbers* {claim.printed}"))
        parts.append(listed([as_sentence(part) for part in finding.numbers.split("; ")]))
        parts += [reasons[claim.text]] if claim.text in reasons else []
    here = [(scale, rows) for (study_name, scale), rows in tables.items() if study_name == name]
    for scale, rows in here:
        parts += scale_part(name, scale, rows, commands, found)
    queued = [s for s in reversed(SCALES) if commands_of(name, s, commands)]
    there = [scale for scale, _ in here]
    for scale in [s for s in queued if s not in there] or ([] if here else ["small"]):
        parts += [f"## How to run it at the scale `{scale}`", as_block(name, scale, commands)]
    return "\n\n".join(part for part in parts if part) + "\n"


def scale_part(
    name: str, scale: Scale, rows: list[Row], commands: list[str], found: Pages
) -> list[str]:
    """What one scale shows: size, commands, pictures, findings and tables."""
    study = STUDIES[name]
    report, mine = study.report(rows), commands_of(name, scale, commands)
    parts = [
        f"## Runs at the scale `{scale}`",
        wrapped(f"{size_in_words(study.cuts(scale))} {facts(study, rows)}"),
        part_by_part(gaps(study, rows)),
        wrapped(to_come(study, mine, rows)),
        as_block(name, scale, mine),
    ]
    for title, figure in report.figures.items():
        picture = f"{name}-{scale}-{title}.png"
        found.pictures[picture] = figure
        parts.append(f"![{study.line}: {title}](../images/reproduction/{picture})")
    parts.append(listed(report.sentences()))
    for table in report.tables.values():
        parts += [wrapped(f"{table.caption}:"), table.markdown().rstrip()]
    return parts


def facts(study: Study, rows: list[Row]) -> str:
    """What the rows are of."""
    told = [seeds_in_words(rows)]
    clips = sorted({r.get("clip", study.clip) for r in rows}, key=lambda clip: clip or 0)
    limits = ["no limit on gradients" if c is None else f"gradients up to {c:g}" for c in clips]
    told.append(" and ".join(limits))
    return "; ".join(told) + "."


def gaps(study: Study, rows: list[Row]) -> str:
    """What of the paper's work was not run, in a sentence."""
    told = []
    columns = [name for name in study.columns if all(r["column"] != name for r in rows)]
    if columns:
        told.append(" · ".join(columns))
    told += [*methods_not_run(study, rows), *study.not_run(rows)]
    return f"Not run: {'; '.join(told)}." if told else ""


def methods_not_run(study: Study, rows: list[Row]) -> list[str]:
    """The methods that have no row, or those that have one where these are fewer; columns that lack
    the same ones together."""
    every = list(dict.fromkeys(r.get("column", "") for r in rows))
    found: dict[str, list[str]] = {}
    for column in every:
        ran = {variant(str(r.get("method")))[0] for r in rows if r.get("column", "") == column}
        there = [name for name in study.methods if variant(name)[0] in ran]
        missing = [name for name in study.methods if name not in there]
        few = 0 < len(there) < len(missing)
        told = f"but {', '.join(there)}" if few else ", ".join(missing)
        if missing:
            found.setdefault(f"{'all' if few else 'the'} methods {told}", []).append(column)
    return [
        told if columns == every else f"{told} on {', '.join(columns)}"
        for told, columns in found.items()
    ]


def seeds_in_words(rows: list[Row]) -> str:
    """The seeds of all rows, or of each column where they differ, with the methods that have
    fewer."""
    found: dict[str, str] = {}
    for column in dict.fromkeys(r.get("column", "") for r in rows):
        mine = [r for r in rows if r.get("column", "") == column]
        seeds = set(names_of(mine, "seed"))
        fewer: dict[str, list[str]] = {}
        for method in dict.fromkeys(r.get("method") for r in mine):
            had = {r["seed"] for r in mine if r.get("method") == method}
            if had != seeds:
                fewer.setdefault(numbers(had), []).append(str(method))
        told = [
            f"{some} alone: {', '.join(few) if len(few) <= FEW else f'{len(few)} others'}"
            for some, few in fewer.items()
        ]
        found[column] = numbers(seeds) + (f" ({'; '.join(told)})" if told else "")
    if len(set(found.values())) > 1:
        return f"Seeds: {'; '.join(f'{seeds} of {column}' for column, seeds in found.items())}"
    same = next(iter(found.values()))
    return f"Seeds {same}" if "," in same else f"Seed {same} alone"


def numbers(seeds: Iterable[int]) -> str:
    """In order."""
    return ", ".join(map(str, sorted(seeds)))


def commands_of(name: str, scale: Scale, commands: list[str]) -> list[str]:
    """The queue's commands of a study and scale. The joint look's are those of the tables."""
    name = "table-1-2" if name == "joint" else name
    return [line for line in commands if line.startswith(f"fedmap study {name} --scale {scale}")]


def to_come(study: Study, commands: list[str], rows: list[Row]) -> str:
    """How many runs of the commands have no row yet, by column."""
    missing: dict[str, set[tuple[tuple[str, object], ...]]] = {}
    for command in commands:
        for work in study.work(choice_of(study, command)):
            if not study.rows_of(work, rows):
                where = study.where(work)
                missing.setdefault(where.get("column", ""), set()).add(tuple(where.items()))
    told = []
    for column, some in missing.items():
        methods = {dict(where).get("method") for where in some}
        of = f" of {column}" * bool(column)
        only = f" ({methods.pop()})" if len(methods) == 1 and None not in methods else ""
        told.append(f"{len(some)} run{'s' * (len(some) > 1)}{of}{only}")
    return f"To come: {', '.join(told)}." if missing else ""


def choice_of(study: Study, command: str) -> Choice:
    """What a command of the queue chooses of a study."""
    parser = argparse.ArgumentParser()
    for name, value in {"scale": "small", "columns": "", "methods": "", "seeds": "0"}.items():
        parser.add_argument(f"--{name}", default=value)
    parser.add_argument("--clip", type=float)
    parser.add_argument("--defaults", action="store_true")
    given = parser.parse_args(shlex.split(command)[3:])
    return study.choice(
        given.scale,
        [name.strip() for name in given.columns.split(";") if name.strip()],
        re.findall(r"[^,\[]+(?:\[[^]]*\])?", given.methods),
        seeds=tuple(map(int, given.seeds.split(","))),
        clip=given.clip,
        defaults_only=given.defaults,
    )


def as_block(name: str, scale: Scale, commands: list[str]) -> str:
    """The queue's commands of a study and scale, or the plain one."""
    mine = commands_of(name, scale, commands) or [f"fedmap study {name} --scale {scale}"]
    return "```\n" + "\n".join(mine) + "\n```"


def as_sentence(text: str) -> str:
    """With a full stop, and a capital unless it begins with a name or formula such as n_c."""
    first = text.split(maxsplit=1)[0].rstrip(",:") if text.strip() else ""
    start = text[:1].upper() if first.isalpha() else text[:1]
    return f"{start}{text[1:].rstrip('.')}."


def listed(sentences: list[str]) -> str:
    """A list, each line not too long."""
    return "\n".join(textwrap.fill(f"- {s}", WIDTH, subsequent_indent="  ") for s in sentences)


def part_by_part(sentence: str) -> str:
    """A sentence whose parts stand behind a colon, as a list if they are several."""
    head, _, rest = sentence.partition(": ")
    parts = rest.rstrip(".").split("; ")
    return f"{head}:\n\n{listed(parts)}" if len(parts) > 1 else wrapped(sentence)


def wrapped(text: str) -> str:
    """In lines that are not too long."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
