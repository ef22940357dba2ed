"""The charts of the page, as Vega-Lite. Each takes its rows by name; `hidden` are the methods that
the reader has switched off, `chosen` is the one that is looked at closer. Colors are variables of
the page's style, so that dark mode and print need no other charts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

COLORS = 12  # of the style; more methods take them again, with other dashes
DASHES = [[1, 0], [6, 3], [2, 2]]
INK, SOFT, LINE = "var(--ink)", "var(--soft)", "var(--line)"
Spec = dict[str, Any]
CONFIG: Spec = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT,
        "titleColor": SOFT,
        "gridColor": LINE,
        "domainColor": LINE,
        "tickColor": LINE,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "labelLimit": 130,
        "labelFlush": False,
    },
    "legend": {"labelColor": SOFT, "titleColor": SOFT, "orient": "top", "labelFontSize": 11},
}
SEEN = "indexof(hidden, datum.method) < 0"
CHOSEN = "datum.method == chosen"


class Charts:
    """The charts for some methods, whose colors are the same in all of them."""

    def __init__(self, methods: Sequence[str], chosen: str) -> None:
        self.methods, self.chosen = list(methods), chosen
        colors = [f"var(--c{i % COLORS})" for i in range(len(methods))]
        dashes = [DASHES[i // COLORS % len(DASHES)] for i in range(len(methods))]
        scale = alt.Scale(domain=self.methods, range=colors)
        self.color = alt.Color("method:N", scale=scale, legend=None)
        dashed = alt.Scale(domain=self.methods, range=dashes)
        self.dash = alt.StrokeDash("method:N", scale=dashed, legend=None)

    def curves(self, kind: str) -> Spec:
        """An accuracy by round: the mean, in its band over seeds."""
        base = alt.Chart().transform_filter(SEEN).transform_filter(f"isValid(datum.{kind})")
        x = alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1, grid=False))
        y = alt.Y(f"{kind}:Q", title="accuracy, %", scale=alt.Scale(zero=False))
        band = base.mark_area(opacity=0.15).encode(
            x, alt.Y(f"{kind}_low:Q", title="accuracy, %"), alt.Y2(f"{kind}_high:Q"), self.color
        )
        alone = base.transform_filter(alt.datum.seeds == 1)
        single = alone.mark_line(strokeWidth=0.8, opacity=0.4).encode(
            x, alt.Y(f"{kind}_single:Q", title="accuracy, %"), self.color
        )
        line = base.mark_line(strokeWidth=2.2).encode(x, y, self.color, self.dash)
        near = alt.selection_point(nearest=True, on="pointerover", clear="pointerout", empty=False)
        dots = base.mark_point(filled=True, size=70).encode(
            x,
            y,
            self.color,
            opacity=alt.condition(near, alt.value(1), alt.value(0)),
            tooltip=[
                alt.Tooltip("method:N"),
                alt.Tooltip("round:Q"),
                alt.Tooltip(f"{kind}:Q", format=".1f", title=f"{kind}, mean of five rounds"),
                alt.Tooltip(f"{kind}_single:Q", format=".1f", title="this round"),
                alt.Tooltip(f"{kind}_low:Q", format=".1f", title="from"),
                alt.Tooltip(f"{kind}_high:Q", format=".1f", title="to"),
                alt.Tooltip("seeds:Q"),
            ],
        )
        dots = dots.add_params(near)
        words = f"Accuracy of the {kind} models by round, a line for each method"
        return self._spec(alt.layer(band, single, line, dots), "curves", words, 280)

    def scatter(self) -> Spec:
        """The global accuracy against the personal one: small for single seeds, large for means."""
        several = alt.datum.seed == "all"
        chart = (
            alt.Chart()
            .mark_point(filled=True)
            .transform_filter(SEEN)
            .encode(
                alt.X("global:Q", title="global accuracy, %", scale=alt.Scale(zero=False)),
                alt.Y("personal:Q", title="personal accuracy, %", scale=alt.Scale(zero=False)),
                self.color,
                size=alt.condition(several, alt.value(200), alt.value(35)),
                opacity=alt.condition(several, alt.value(0.95), alt.value(0.5)),
                tooltip=["method:N", "seed:N", *_numbers("global", "personal")],
            )
        )
        words = "Global against personal accuracy: the upper right corner is best at both"
        return self._spec(chart, "scatter", words, 280)

    def gains_by_method(self, means: Mapping[str, float], baseline: str) -> Spec:
        """Every client's gain as a tick, a line for each method with its mean."""
        base = alt.Chart().transform_filter(SEEN)
        middles = alt.InlineData([{"method": name, "mean": mean} for name, mean in means.items()])
        x = alt.X("gain:Q", title=f"points over {baseline}")
        y = alt.Y("method:N", title=None, sort=None, scale=alt.Scale(domain=list(means)))
        ticks = base.mark_tick(thickness=2, size=14, opacity=0.7).encode(
            x, y, self.color, tooltip=self._of_a_client()
        )
        middle = (
            alt.Chart(middles)
            .transform_filter(SEEN)
            .mark_point(shape="diamond", size=90, filled=True, stroke=INK)
        )
        middle = middle.encode(
            alt.X("mean:Q"), y, self.color, tooltip=["method:N", *_numbers("mean", "+.1f")]
        )
        words = "What each client gains, by method; the diamond is the mean"
        return self._spec(alt.layer(_zero(), ticks, middle), "gains", words, tall(list(means), 26))

    def gains_by_client(self, clients: Sequence[str], baseline: str) -> Spec:
        """Every client by name, a dot for each method."""
        y = alt.Y("client:N", title=None, sort=None, scale=alt.Scale(domain=list(clients)))
        dots = (
            alt.Chart()
            .mark_point(filled=True, size=60, opacity=0.85)
            .transform_filter(SEEN)
            .encode(
                alt.X("gain:Q", title=f"points over {baseline}"),
                y.axis(grid=True, labelOverlap=False),
                self.color,
                tooltip=self._of_a_client(),
            )
        )
        words = "What each client gains, by name; those that lose the most come first"
        return self._spec(alt.layer(_zero(), dots), "clients", words, tall(clients))

    def holdings(self, clients: Sequence[str], classes: Sequence[str], counted: bool) -> Spec:
        """Which client holds which classes: the darker, the more training samples."""
        few = len(clients) <= 30
        x = alt.X("client:N", title="client", sort=None, scale=alt.Scale(domain=list(clients)))
        y = alt.Y("class:N", title=None, sort=None, scale=alt.Scale(domain=list(classes)))
        shade = alt.Opacity("samples:Q", legend=None, scale=alt.Scale(range=[0.15, 1], zero=True))
        chart = (
            alt.Chart()
            .mark_rect(color="var(--c2)", cornerRadius=2)
            .encode(
                x.axis(labels=few, ticks=few, labelAngle=-60 if few else 0, labelOverlap=True),
                y,
                shade if counted else alt.OpacityValue(0.8),
                tooltip=["client:N", "class:N", *(["samples:Q"] if counted else [])],
            )
        )
        words = "Which client holds which class; a hole is a missing class"
        return self._spec(chart, "holdings", words, tall(classes))

    def classes(self, classes: Sequence[str], kind: str) -> Spec:
        """Each class's accuracy, a dot for each method."""
        y = alt.Y("class:N", title=None, sort=None, scale=alt.Scale(domain=list(classes)))
        chart = (
            alt.Chart()
            .mark_point(filled=True, size=60, opacity=0.85)
            .transform_filter(SEEN)
            .transform_filter(alt.datum.kind == kind)
            .encode(
                alt.X("accuracy:Q", title="accuracy, %"),
                y.axis(grid=True),
                self.color,
                tooltip=["method:N", "class:N", *_numbers("accuracy")],
            )
        )
        words = f"Accuracy of the {kind} models for each class"
        return self._spec(chart, "classes", words, tall(classes))

    def confusion(self, classes: Sequence[str], kind: str) -> Spec:
        """Which answers the samples of each class got from the chosen method's models."""
        scale = alt.Scale(domain=list(classes))
        chart = (
            alt.Chart()
            .mark_rect(color="var(--c2)")
            .transform_filter(CHOSEN)
            .transform_filter(alt.datum.kind == kind)
            .encode(
                alt.X("answer:N", sort=None, scale=scale).axis(labelAngle=-60),
                alt.Y("class:N", sort=None, scale=scale),
                alt.Opacity(
                    "share:Q", legend=None, scale=alt.Scale(domain=[0, 100], range=[0.03, 1])
                ),
                tooltip=["class:N", "answer:N", "count:Q", *_numbers("share")],
            )
        )
        words = f"Confusion matrix of the {kind} models: which share of a class got which answer"
        return self._spec(chart, "confusion", words, tall(classes, 22))

    def drift(self, methods: Sequence[str]) -> Spec:
        """How far proxies are from the global model's: of observed classes, and of missing ones."""
        shape = alt.Shape(
            "proxies:N",
            title="proxies of classes",
            scale=alt.Scale(domain=["observed", "missing"], range=["circle", "triangle-up"]),
        )
        y = alt.Y("method:N", title=None, sort=None, scale=alt.Scale(domain=list(methods)))
        base = alt.Chart().transform_filter(SEEN)
        x = alt.X("drift:Q", title="distance to the global proxy, relative")
        line = base.mark_line(strokeWidth=1.5, opacity=0.6).encode(x, y, self.color)
        dots = base.mark_point(filled=True, size=90).encode(
            x, y, self.color, shape, tooltip=["method:N", "proxies:N", *_numbers("drift", ".3f")]
        )
        words = "How far the proxies in clients' own models are from the global model's"
        return self._spec(alt.layer(line, dots), "drift", words, tall(methods, 26))

    def norms(self, classes: Sequence[str]) -> Spec:
        """Lengths of each class's proxies in the chosen method's models."""
        names = {"observed": "clients that have it", "missing": "clients that miss it"}
        names["global"] = "the global model"
        named = f"{json.dumps(names)}[replace(datum.which, 'norm_', '')]"
        scale = alt.Scale(domain=list(names.values()), range=["var(--c2)", "var(--c3)", SOFT])
        shapes = alt.Scale(domain=scale.domain, range=["circle", "triangle-up", "square"])
        y = alt.Y("class:N", title=None, sort=None, scale=alt.Scale(domain=list(classes)))
        chart = (
            alt.Chart()
            .transform_filter(CHOSEN)
            .transform_fold([f"norm_{name}" for name in names], as_=["which", "norm"])
            .transform_filter("isValid(datum.norm)")
            .transform_calculate(models=named)
            .mark_point(filled=True, size=80)
            .encode(
                alt.X("norm:Q", title="length of the class's proxy", scale=alt.Scale(zero=False)),
                y.axis(grid=True),
                alt.Color("models:N", scale=scale).legend(title=None, columns=2),
                alt.Shape("models:N", scale=shapes).legend(title=None, columns=2),
                tooltip=["class:N", "models:N", *_numbers("norm", ".3f")],
            )
        )
        words = "Length of each class's proxy at clients that have the class and that miss it"
        return self._spec(chart, "norms", words, tall(classes))

    def bars(self, name: str, title: str) -> Spec:
        """What a round costs."""
        y = alt.Y("method:N", title=None, sort=None, scale=alt.Scale(domain=self.methods))
        tip = ["method:N", *_numbers("down", ".3f"), *_numbers("up", ".3f")]
        chart = (
            alt.Chart()
            .mark_bar(cornerRadiusEnd=2, height=12)
            .transform_filter(SEEN)
            .encode(
                alt.X(f"{name}:Q", title=title), y, self.color,
                tooltip=[*tip, *_numbers("seconds", ".3f")],
            )
        )  # fmt: skip
        return self._spec(chart, "cost", title, tall(self.methods, 22))

    def _of_a_client(self) -> list[Any]:
        return [
            "client:N",
            "method:N",
            *_numbers("gain", "+.1f"),
            *_numbers("personal", "baseline"),
        ]

    def _spec(self, chart: Any, rows: str, words: str, height: int) -> Spec:
        """The chart as wide as its place on the page, with what the page can change."""
        given = [
            alt.param(name="hidden", value=[]),
            alt.param(name="chosen", value=self.chosen),
        ]
        whole = chart.add_params(*given).properties(
            data=alt.NamedData(name=rows),
            width="container",
            height=height,
            description=words,
            padding={"left": 2, "top": 5, "right": 14, "bottom": 5},  # for the last number
            autosize=alt.AutoSizeParams(type="fit-x", contains="padding"),
        )
        found: Spec = whole.configure(**CONFIG).to_dict()
        return found


def tall(lines: Sequence[str], each: int = 18) -> int:
    """Pixels for so many lines."""
    return each * max(len(lines), 2)


def _numbers(*names: str) -> list[Any]:
    """Tips for some fields; a format may stand last."""
    format = names[-1] if not names[-1].isidentifier() else ".1f"
    return [alt.Tooltip(f"{n}:Q", format=format) for n in names if n.isidentifier()]


def _zero() -> Any:
    """The line between those that gain and those that lose."""
    one = alt.InlineData(values=[{"zero": 0}])
    return alt.Chart(one).mark_rule(color=SOFT, strokeWidth=1.5).encode(x="zero:Q")
