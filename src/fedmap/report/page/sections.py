"""The parts of the page, one below the other: each with its words, tables and charts."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from fedmap.report.clients import SPOKEN
from fedmap.report.command import command
from fedmap.report.page import numbers
from fedmap.report.page.found import DONE, Found
from fedmap.report.page.numbers import Rows
from fedmap.report.page.verdict import cards
from fedmap.report.table import Table
from fedmap.simulate.settings import read_table

if TYPE_CHECKING:
    from fedmap.report.page.build import Contents
    from fedmap.report.page.charts import Charts

MOST_RUNS = 200  # whose commands are on the page
MOST_HOLDERS = 100  # clients of the picture of who holds what
MOST_NAMES = 4  # runs that are named as not finished
MOST_LINES = 400  # of a table


class Part(NamedTuple):
    """A part of the page, the charts in it, and their rows by name."""

    html: str
    charts: dict[str, Any] = {}
    rows: dict[str, Rows] = {}


def sections(contents: "Contents") -> list[Part]:
    """All parts that have something to show."""
    from fedmap.report.page.charts import Charts  # altair, of an extra

    charts = Charts(list(contents.drawn), contents.leader)
    every = [
        opening(contents),
        methods(contents),
        rounds(contents, charts),
        clients(contents, charts),
        who_holds_what(contents, charts),
        classes(contents, charts),
        proxies(contents, charts),
        cost(contents, charts),
        settings(contents),
        runs(contents),
    ]
    return [part for part in every if part.html]


def section(name: str, title: str, words: str, *inside: str) -> str:
    """A titled part."""
    text = f"<p>{escape(words)}</p>" if words else ""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{text}{"".join(inside)}</section>'


def chart(name: str, title: str = "") -> str:
    """The place of a chart."""
    above = f"<h3>{escape(title)}</h3>" if title else ""
    return f'<div>{above}<div class="chart" data-chart="{name}"></div></div>'


def two(*inside: str) -> str:
    """Side by side, where there is room."""
    return f'<div class="two">{"".join(inside)}</div>'


def table(cells: Table, kind: str = "") -> str:
    """A table that can be sorted; of a very long one the beginning."""
    left = len(cells.lines) - MOST_LINES
    rest = f'<p class="soft">{left} more lines are in the CSV file.</p>' if left > 0 else ""
    short = cells._replace(lines=cells.lines[:MOST_LINES])
    return f'<div class="scroll {kind}">{short.html()}</div>{rest}'


def folded(title: str, inside: str) -> str:
    """What is shown when it is asked for."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def listed(values: Iterable[object]) -> str:
    """Different values with commas."""
    return ", ".join(dict.fromkeys(map(str, values)))


def several(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}{'' if count == 1 else 's'}"


# The first screen.


def opening(contents: "Contents") -> Part:
    """What the page is about, and the answers."""
    run, every = contents.first, [one.result.settings for one in contents.shown.all]
    seeds = sorted({s.seed for s in every})
    facts = [
        several(len(contents.shown.runs), "method"),
        several(len(contents.shown.all), "run"),
        f"{listed(s.clients for s in every)} clients",
        several(len(run.classes), "class").replace("classs", "classes"),
        f"net {listed(s.net for s in every)}",
        f"{listed(s.rounds for s in every)} rounds",
        f"seed{'s' * (len(seeds) > 1)} {listed(seeds)}",
    ]
    answers = cards(contents.results, contents.clients, contents.baseline)
    inside = "".join(
        f'<div class="card"><h2>{escape(card.question)}</h2><strong>{escape(card.answer)}</strong>'
        f"<p>{escape(card.detail)}</p></div>"
        for card in answers
    )
    title = f"<h1>What came out on {escape(run.settings.data)}</h1>"
    title += f'<p class="facts">{escape(", ".join(facts))}</p>'
    said = "".join(f'<p class="note">{escape(line)}</p>' for line in remarks(contents))
    return Part(
        f'<header>{title}{said}<div class="cards">{inside}</div></header>{legend(contents)}'
    )


def remarks(contents: "Contents") -> list[str]:
    """What a reader must know of the runs before the numbers."""
    found: list[str] = []
    states: dict[str, list[str]] = {}
    for label, runs in contents.shown.runs.items():
        for one in runs:
            states.setdefault(one.state, []).append(f"{label}, seed {one.result.settings.seed}")
    for state, names in states.items():
        if state != DONE:
            some = "; ".join(names[:MOST_NAMES]) + "; ..." * (len(names) > MOST_NAMES)
            words = f"{several(len(names), 'run')}: {state} ({some})"
            found.append(f"{words}, with curves up to the last round; see the list of runs below")
    if contents.shown.damaged:
        found.append(f"{several(len(contents.shown.damaged), 'run')} cannot be read; see below")
    if len(contents.drawn) < len(contents.results):
        found.append(
            f"drawn are the {len(contents.drawn)} methods with the best personal models; the "
            f"tables have all {len(contents.results)}"
        )
    return found


def legend(contents: "Contents") -> str:
    """A button for each method."""
    from fedmap.report.page.charts import COLORS

    names = list(contents.drawn)
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-method="{escape(name)}" '
        f'data-color="--c{place % COLORS}"><span class="swatch"></span>{escape(name)}</button>'
        for place, name in enumerate(names)
    )
    every = '<button type="button" id="all">all / none</button>' if len(names) > 1 else ""
    words = "Methods: click to hide and show"
    group = f'<div class="legend" role="group" aria-label="{words}" title="{words}">'
    return f"{group}{buttons}{every}</div>"


def methods(contents: "Contents") -> Part:
    """The main table."""
    over = SPOKEN.get(contents.baseline, contents.baseline)
    words = (
        "Global: the aggregated model on the whole test set. Personal: each client's own model on "
        "its own test samples; own classes: choosing among the classes that the client has. Mean ± "
        f"deviation over seeds. A gain is a client's personal accuracy minus that of {over}."
    )
    return Part(section("methods", "Methods", words, table(contents.tables["methods"])))


def rounds(contents: "Contents", charts: "Charts") -> Part:
    """Both accuracies by round, and one against the other."""
    curves, points = numbers.curve_rows(contents.drawn), numbers.scatter_rows(contents.drawn)
    if not curves:
        return Part("")
    found = {f"curves-{kind}": charts.curves(kind) for kind in numbers.KINDS}
    inside = two(
        chart("curves-global", "Global model, on every class"),
        chart("curves-personal", "Personal models, each on its client's own classes"),
    )
    words = (
        "The line is the mean over seeds of the last five rounds, in the band of one deviation "
        "over seeds; with one seed, single rounds are thin. Personal accuracy is of the clients "
        "that took part in the round."
    )
    html = section("rounds", "Accuracy over rounds", words, inside)
    if len({row["method"] for row in points}) > 1:
        found["scatter"] = charts.scatter()
        html += section(
            "joint",
            "Both goals at once",
            "After the last round, personal over all clients. The upper right corner is best at "
            "both. A large dot is a method's mean, a small one a single seed; methods without a "
            "global model are not here.",
            f'<div class="narrow">{chart("scatter")}</div>',
        )
    return Part(html, found, {"curves": curves, "scatter": points})


def clients(contents: "Contents", charts: "Charts") -> Part:
    """Who gains and who loses."""
    gains, base = contents.gains, SPOKEN.get(contents.baseline, contents.baseline)
    cells = contents.tables.get("clients")
    if cells is None:
        return Part("")
    every = table(contents.tables["fairness"]) if "fairness" in contents.tables else ""
    every += folded("Every client in numbers", table(cells, "tall"))
    if not gains:
        words = f"There is nothing finished of {base} with these seeds to compare clients with."
        return Part(section("clients", "Clients", words, every))
    few = numbers.extremes(gains)
    names, means = [row["client"] for row in few], numbers.mean_gains(gains, "method")
    names = list(dict.fromkeys(names))
    ordered = {name: means[name] for name in contents.drawn if name in means}
    found = {
        "gains-method": charts.gains_by_method(ordered, base),
        "gains-client": charts.gains_by_client(names, base),
    }
    count = len({row["client"] for row in gains})
    some = f" Of {count} clients, the {len(names)} with the least and the most gain are named."
    words = (
        f"Left of zero, a client was better off with {base}. A client's test set is small, so a "
        "few points of one client say little." + some * (len(names) < count)
    )
    inside = chart("gains-method", "By method: a tick for each client, a diamond for the mean")
    inside += chart("gains-client", "By client: those that lose the most first")
    title = f"Who gains and who loses, against {base}"
    rows = {"gains": numbers.thinned_ticks(gains), "clients": few}
    return Part(section("clients", title, words, inside, every), found, rows)


def who_holds_what(contents: "Contents", charts: "Charts") -> Part:
    """The client-by-class picture."""
    found = contents.holdings
    if found is None:
        words = (
            "The data is not on this machine and no client's model was kept, so who holds what is "
            "not known."
        )
        return Part(section("holdings", "Who holds what", words))
    held, run = found.held[:MOST_HOLDERS], contents.first
    names = [str(name) for name in run.final.get("client_names", ())] or [
        f"client {number}" for number in range(len(held))
    ]
    rows = [
        {"client": names[i], "class": contents.classes[j], "samples": int(count)}
        for i, line in enumerate(held)
        for j, count in enumerate(line)
        if count
    ]
    missing = float((found.held == 0).sum(1).mean())
    words = (
        f"A client misses {missing:.1f} of {len(contents.classes)} classes on average. "
        + ("The darker, the more training samples." if found.counted else "")
        + f" The clients of seed {run.settings.seed}; a hole is a missing class."
    )
    spec = charts.holdings(names[: len(held)], contents.classes, found.counted)
    html = section("holdings", "Who holds what", words, chart("holdings"))
    return Part(html, {"holdings": spec}, {"holdings": rows})


def choice(name: str, label: str, values: Sequence[str], first: str) -> str:
    """A list of methods, of which one is looked at closer."""
    ordered = sorted(values, key=lambda value: value != first)
    options = "".join(f"<option>{escape(value)}</option>" for value in ordered)
    named = f'<label for="look-{name}">{escape(label)}</label> '
    return f'{named}<select id="look-{name}" data-signal="chosen">{options}</select>'


def classes(contents: "Contents", charts: "Charts") -> Part:
    """Accuracy for each class, and which classes are taken for which."""
    rows = numbers.class_rows(contents.drawn)
    if not rows:
        return Part("")
    kinds = [kind for kind in numbers.KINDS if any(row["kind"] == kind for row in rows)]
    titles = {"global": "Global model", "personal": "All personal models together"}
    found = {f"classes-{kind}": charts.classes(contents.classes, kind) for kind in kinds}
    inside = two(*(chart(f"classes-{kind}", titles[kind]) for kind in kinds))
    cells = contents.tables.get("classes")
    if cells is not None:
        inside += folded("Every class in numbers", table(cells, "tall"))
    html = section("classes", "Accuracy for each class", "", inside)
    confused = numbers.confusion_rows(contents.drawn, contents.classes)
    if confused:
        names = list(dict.fromkeys(row["method"] for row in confused))
        asked = choice("confusion", "Models of", names, contents.leader)
        words = (
            "Rows are the true classes, columns the answers; the darker, the larger the share of "
            "the class's samples, over all seeds."
        )
        known = [kind for kind in kinds if any(row["kind"] == kind for row in confused)]
        pair = two(*(chart(f"confusion-{kind}", titles[kind]) for kind in known))
        html += section("confusion", "What is taken for what", words, asked, pair)
        found |= {f"confusion-{kind}": charts.confusion(contents.classes, kind) for kind in known}
    return Part(html, found, {"classes": rows, "confusion": confused})


def proxies(contents: "Contents", charts: "Charts") -> Part:
    """What happens to the proxies of missing classes."""
    if not contents.proxies:
        return Part("")
    drift = numbers.drift_rows(contents.proxies)
    norms = numbers.norm_rows(contents.proxies, contents.classes)
    found = {"norms": charts.norms(contents.classes)}
    inside = chart("norms", "Length of each class's proxy")
    if drift:
        names = list(dict.fromkeys(row["method"] for row in drift))
        found["drift"] = charts.drift(names)
        inside = chart("drift", "How far proxies are from the global model's") + inside
    words = (
        "A proxy is a class's row of the classifier. At a client that misses a class, no sample "
        "pulls its proxy: local training only pushes it. Here are the clients' final models of the "
        "first seed, beside the global model."
    )
    asked = choice("proxies", "Lengths in models of", list(contents.proxies), contents.leader)
    inside = two(inside) + folded("In numbers", table(contents.tables["proxies"]))
    html = section("proxies", "Proxies of missing classes", words, asked, inside)
    return Part(html, found, {"drift": drift, "norms": norms})


def cost(contents: "Contents", charts: "Charts") -> Part:
    """Bytes and time."""
    rows = numbers.cost_rows(contents.drawn)
    if not rows:
        return Part("")
    for row in rows:
        row["moved"] = row["down"] + row["up"]
    found = {
        "cost-bytes": charts.bars("moved", "megabytes down and up in a round"),
        "cost-time": charts.bars("seconds", "seconds a round"),
    }
    inside = two(chart("cost-bytes", "What moves"), chart("cost-time", "How long it takes"))
    every = folded("In numbers", table(contents.tables["cost"]))
    words = "Seconds are of the machine that ran it, with whatever else it did."
    html = section("cost", "Bytes and time", words, inside, every)
    return Part(html, found, {"cost": rows})


# What it was made with.


def all_settings(one: Found) -> dict[str, str]:
    """Every setting of a run but the seeds, the parameters under their own names."""
    settings = one.result.settings.model_dump(mode="json", exclude={"seed", "partition_seed"})
    groups = {name: settings.pop(name) for name in ("params", "partition_params")}
    flat = settings | {f"partition {k}": v for k, v in groups["partition_params"].items()}
    known = flat | groups["params"]
    return {name: str(value) for name, value in known.items() if value is not None}


def settings(contents: "Contents") -> Part:
    """Every setting: what all runs have in common, and what is of one method."""
    of_each = {label: all_settings(found[0]) for label, found in contents.shown.runs.items()}
    first = next(iter(of_each.values()))
    common = {
        name: value
        for name, value in first.items()
        if all(of.get(name) == value for of in of_each.values())
    }
    made = {"seeds": listed(sorted({one.result.settings.seed for one in contents.shown.all}))}
    for name in ("versions", "processor"):
        made |= read_table(contents.first.folder / "run.toml", name)
    same = Table(
        "All runs", ["setting", "value"], [[n, str(v)] for n, v in (common | made).items()]
    )
    inside = table(same, "words")
    lines = [
        [label, ", ".join(f"{n} = {v}" for n, v in of.items() if n not in common)]
        for label, of in of_each.items()
    ]
    if len(lines) > 1:
        inside = table(Table("Each method", ["method", "settings"], lines), "words") + inside
    return Part(section("settings", "Settings", "", folded("Every setting", inside)))


def runs(contents: "Contents") -> Part:
    """Every run: its state, its folder, and the command that repeats it."""
    every = [(label, one) for label, found in contents.shown.runs.items() for one in found]
    inside = "".join(run_lines(label, one) for label, one in every[:MOST_RUNS])
    inside += "".join(
        folded(f"damaged: {folder}", f"<p>{escape(reason)}</p>")
        for folder, reason in contents.shown.damaged.items()
    )
    words = "Each with its state, and the command that repeats it to the same bits."
    if len(every) > MOST_RUNS:
        words += f" The first {MOST_RUNS} of {len(every)}."
    return Part(section("runs", "Runs", words, inside))


def run_lines(label: str, one: Found) -> str:
    """A run with its command."""
    result = one.result
    done = f"{len(result.rounds)} of {result.settings.rounds} rounds"
    title = f"{label}, seed {result.settings.seed}: {one.state}, {done}"
    again = command(result.settings)
    text = f"<p>{escape(str(result.folder))}{escape('; ' + one.note if one.note else '')}</p>"
    if again:
        return folded(title, f"{text}<pre>{escape(again)}</pre>")
    return folded(
        title,
        f"{text}<p>It was started from Python or at real sites; no command can repeat it.</p>",
    )
