"""The page as one text: what was found, in words, tables and charts."""

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import Any

from fedmap.errors import FedmapError
from fedmap.report.clients import GLOBAL, Served, clients_table, finished, served
from fedmap.report.page import numbers
from fedmap.report.page.found import Shown
from fedmap.report.page.models import Holdings, Proxies, holdings, proxies
from fedmap.report.page.numbers import Results, Rows
from fedmap.report.page.sections import Part, sections
from fedmap.report.page.verdict import best_of
from fedmap.report.table import Table, as_table
from fedmap.simulate.result import Result

MOST_METHODS = 24  # that are drawn; tables have all
EXTRA = "pip install 'fedmap[report]'"
Live = dict[str, Any]  # of a page that is served: its version, and how often to look for another


@dataclass(frozen=True)
class Contents:
    """All that a page shows of some runs."""

    shown: Shown
    wanted: str | None = None  # the baseline that is asked for

    @cached_property
    def results(self) -> Results:
        """The runs with rounds, by label."""
        return self.shown.results

    @cached_property
    def ended(self) -> Results:
        """The finished runs of each method, or all of it where none is: an early round does not
        stand beside last ones."""
        return {
            label: [run for run in runs if finished(run)] or runs
            for label, runs in self.results.items()
        }

    @cached_property
    def drawn(self) -> Results:
        """Those of the methods that are drawn: all, or the best by their personal models."""
        if len(self.results) <= MOST_METHODS:
            return self.results
        means = {
            label: max((run.final.get(numbers.PERSONAL) or 0 for run in runs), default=0)
            for label, runs in self.results.items()
        }
        best = sorted(means, key=lambda label: -means[label])[:MOST_METHODS]
        return {label: runs for label, runs in self.results.items() if label in best}

    @cached_property
    def first(self) -> Result:
        """A run that says what all have in common: a finished one, if there is one."""
        every = [one.result for one in self.shown.all]
        return next((run for run in every if "classes" in run.final), every[0])

    @cached_property
    def leader(self) -> str:
        """The method that is looked at closer first: the one with the best personal models."""
        return best_of(self.drawn)

    @cached_property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return self.first.classes

    @cached_property
    def baseline(self) -> str:
        """What clients are compared with."""
        return numbers.chosen_baseline(self.results, self.wanted)

    @cached_property
    def served(self) -> list[Served]:
        """Every client of every finished run."""
        return served(dict(self.results), self.baseline)

    @cached_property
    def clients(self) -> list[Served]:
        """Each client once for each method."""
        return numbers.each_client(self.served, numbers.same_clients(self.results))

    @cached_property
    def gains(self) -> Rows:
        """What clients gain with the methods that are drawn."""
        return numbers.gain_rows([one for one in self.clients if one.method in self.drawn])

    @cached_property
    def proxies(self) -> dict[str, Proxies]:
        """Of the first finished run of each method that is drawn."""
        found = {label: proxies(runs[0]) for label, runs in self.drawn.items() if runs}
        return {label: one for label, one in found.items() if one is not None}

    @cached_property
    def holdings(self) -> Holdings | None:
        """Who holds what in the first run."""
        return holdings(self.first)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Every table by the name of its file."""
        rows = numbers.method_rows(self.ended, self.clients)
        base = "global model" if self.baseline == GLOBAL else self.baseline
        found = {
            "methods": as_table(rows, "Accuracy in %", baseline=base),
            "fairness": numbers.fairness_table(self.clients, base),
            "clients": clients_table(self.served, self.baseline),
            "classes": numbers.class_table(self.results, self.classes),
            "proxies": numbers.proxy_table(self.proxies),
            "cost": numbers.cost_table(self.results),
        }
        return {name: table for name, table in found.items() if table.lines}


def page(contents: Contents, live: Live | None = None) -> str:
    """The page, with nothing to be fetched from anywhere. A served one looks for a newer version of
    itself."""
    title = f"fedmap: {contents.first.settings.data}"
    parts = sections(contents)
    data = {"title": title, "live": live} | charts_and_rows(parts)
    return filled(title, "\n".join(part.html for part in parts), data, bool(live))


def sentence_page(sentence: str, live: Live) -> str:
    """A served page that has nothing to show yet, and says why."""
    text = f'<h1>fedmap</h1><p class="note">{escape(sentence)}</p>'
    return filled("fedmap", text, {"title": "fedmap", "live": live, "charts": {}, "rows": {}}, True)


def charts_and_rows(parts: Sequence[Part]) -> dict[str, Any]:
    """What the page's script draws."""
    charts = {name: chart for part in parts for name, chart in part.charts.items()}
    rows = {name: columns(lines) for part in parts for name, lines in part.rows.items()}
    return {"charts": charts, "rows": rows}


def columns(rows: Rows) -> dict[str, Any]:
    """Rows as columns, which are far shorter: numbers are rounded, texts are kept once."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: _column([row.get(name) for row in rows]) for name in names}


def _column(cells: list[Any]) -> Any:
    if any(isinstance(cell, str) for cell in cells):
        texts = list(dict.fromkeys(map(str, cells)))
        places = {text: place for place, text in enumerate(texts)}
        return {"names": texts, "at": [places[str(cell)] for cell in cells]}
    return [_rounded(cell) for cell in cells]


def _rounded(cell: Any) -> Any:
    if not isinstance(cell, float):
        return cell
    return float(f"{cell:.5g}") if math.isfinite(cell) else None


def filled(title: str, body: str, data: dict[str, Any], live: bool) -> str:
    """The template with its parts. Nothing but these two scripts may run, and only a served page
    may ask for anything: itself."""
    style, script, bundle = text_of("page.css"), text_of("page.js"), library()
    policy = {
        "default-src": "'none'",
        "script-src": f"{checksum(bundle)} {checksum(script)}",
        "style-src": "'unsafe-inline'",
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return Template(text_of("page.html")).substitute(
        policy="; ".join(f"{name} {value}" for name, value in policy.items()),
        version=version("fedmap"),
        title=escape(title),
        style=style,
        body=body,
        data=as_text(data),
        library=bundle,
        script=script,
    )


def as_text(data: Any) -> str:
    """JSON in which no text can end the element that it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def checksum(script: str) -> str:
    """What a content security policy calls a script that may run."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def text_of(name: str) -> str:
    """A file that lies beside this one."""
    return files("fedmap.report.page").joinpath(name).read_text("utf-8")


@cache
def library() -> str:
    """The JavaScript of Vega, Vega-Lite and Vega-Embed."""
    try:
        import altair  # noqa: F401  (what draws the charts is asked for at the same time)
        import vl_convert
    except ImportError:
        raise FedmapError(
            f"a report needs altair and vl-convert-python; install them with: {EXTRA}"
        ) from None
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", r"<\/script")
