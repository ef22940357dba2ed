"""Two clients, one with the digits 0 to 4 and one with 5 to 9: what local training and aggregation
do to features and proxies, and how much accuracy each download costs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedmap.federation import Federation
from fedmap.paper.central import Step, Stepwise, shown_cuts
from fedmap.paper.figures.missing_features import View, draw, in_the_plane, key, point
from fedmap.paper.finding import Estimate, Finding, Verdict, by_seeds, together
from fedmap.paper.study import STUDIES, Choice, Claim, Report, Row, Scale, Study
from fedmap.report.plots import bare
from fedmap.report.table import Table
from fedmap.simulate import Settings
from fedmap.simulate.engines.local import LocalEngine
from fedmap.simulate.round import Played, global_accuracy, play_round
from fedmap.simulate.store import FileStore
from fedmap.simulate.tasks import Setup
from fedmap.values import Values

CLIENTS = ("A", "B")
METHODS: dict[str, tuple[str, float | None]] = {
    "FedAvg": ("fedavg", None),
    "MAP, α = 0.9": ("map", 0.9),
    "MAP, α = 0.1": ("map", 0.1),
}
PLAIN, *OURS = METHODS
ROUNDS, EPOCHS = 10, 5
SIZES: dict[Scale, dict[str, Any]] = {
    "paper": {"data": "mnist", "rounds": ROUNDS, "epochs": EPOCHS},
    "small": {"data": "mnist", "rounds": ROUNDS, "epochs": EPOCHS, "samples": 12000},
    "smoke": {"data": "fashion-mini", "rounds": 4, "epochs": 1, "samples": 200},
}
POINTS = 60  # features of a class that are kept
MOMENTS = {
    "download": "client A's download",
    "local": "after client A's training",
    "aggregate": "aggregated, every class",
}
MUCH_WORSE = 5  # points
DOWNLOADED, PERSONAL = "#B3262E", "#2A7F9E"  # colors of client A's two models


@dataclass(frozen=True, kw_only=True)
class Demo(Stepwise):
    """One method in the federation of two; a step is a round."""

    title: str
    method: str
    alpha: float | None  # of MAP
    rounds: int
    epochs: int

    @property
    def label(self) -> str:
        return f"{self.title} with two clients of {self.data} #{self.seed}"

    @property
    def steps(self) -> int:
        return self.rounds

    @cached_property
    def federation(self) -> Federation:
        second = self.dataset.train_y >= len(self.dataset.classes) // 2
        return Federation(self.dataset, second.long().numpy(), seed=self.seed)

    @cached_property
    def setup(self) -> Setup:
        """The method on the two clients."""
        params = {} if self.alpha is None else {"alpha": self.alpha}
        settings = Settings(
            method=self.method, params=params, data=self.data, net=self.net, seed=self.seed,
            rounds=self.rounds, fraction=1, epochs=self.epochs, batch=self.batch, lr=self.lr,
        )  # fmt: skip
        return Setup(settings, self.federation)

    def begin(self) -> Values:
        method, model = self.setup.method, self.setup.initial
        values = named("server", method.start(model))
        for client in CLIENTS:
            values |= named(client, method.client_state(model))
        return values

    def step(self, number: int, left: Values) -> Step:
        """One round of both clients, with the accuracies, and in the round that is shown with what
        the models see."""
        setup = self.setup
        store = FileStore(setup.method.client_state(setup.initial), len(CLIENTS))
        for k, client in enumerate(CLIENTS):
            if number > 1:
                store.put(k, number - 1, part(left, client))
        engine = LocalEngine(setup, store)
        played = play_round(setup, engine, number, part(left, "server"))
        kept = named("server", played.state)
        for k, client in enumerate(CLIENTS):
            kept |= named(client, store[k])
        accuracy = global_accuracy(played.tally)["global_accuracy"]
        rows = [*self.accuracies(played), moment("aggregate", None, accuracy)]
        if number == self.rounds // 2:  # the round that is looked at
            rows += self.views(played)
        where: Row = {"round": number}
        return Step(kept, [where | row for row in rows], f"{100 * accuracy:.1f}%")

    def accuracies(self, played: Played) -> list[Row]:
        """Of each client's download and personal model, on its own test images."""
        return [
            moment(name, CLIENTS[reply.key], reply.numbers[number])
            for reply in played.replies
            for name, number in (("download", "accuracy_download"), ("personal", "accuracy"))
        ]

    def views(self, played: Played) -> list[Row]:
        """What client A's download, its trained model and the aggregated model see."""
        own = self.setup.client(0, played.round).test_data
        every = self.dataset.normalize(self.federation.test_x), self.federation.test_y
        seen = {
            "download": (played.down["model"], own),
            "local": (played.replies[0].up["model"], own),
            "aggregate": (played.state["model"], every),
        }
        self.setup.models.release()
        return [
            {"moment": name, "client": "A"} | row
            for name, (vector, (x, y)) in seen.items()
            for row in in_the_plane(self.setup.models.model(vector), x, y, POINTS)
        ]

    def seconds_at_end(self) -> float:
        """Nothing comes after the last step."""
        return 0.0

    def seconds_a_step(self) -> float:
        """Both clients' steps; MAP's second stage adds a tenth."""
        return self.seconds_a_batch() * self.epochs * 1.1 * len(self.dataset.train_y) / self.batch


def moment(name: str, client: str | None, accuracy: float) -> Row:
    """One accuracy at one moment of a round."""
    return {"moment": name, "client": client} | point("accuracy", None, 100 * accuracy)


def named(owner: str, values: Values) -> Values:
    """The values under names that begin with their owner's."""
    return {f"{owner}.{name}": value for name, value in values.items()}


def part(values: Values, owner: str) -> Values:
    """What `named` put there for this owner."""
    return {
        name.removeprefix(f"{owner}."): value
        for name, value in values.items()
        if name.startswith(f"{owner}.")
    }


class TwoClientDemo(Study):
    """FedAvg, and MAP with two values of alpha."""

    line = "Two clients with five digits each: features, proxies and the drop after each download"
    paper = "The figure of the FL demo (Sect. 5.1.3)"

    def cuts(self, scale: Scale) -> list[str]:
        rounds = SIZES[scale]["rounds"]
        fewer = [f"{rounds} rounds instead of {ROUNDS}"] if rounds < ROUNDS else []
        return shown_cuts(SIZES[scale], EPOCHS) + fewer

    def work(self, choice: Choice) -> list[Demo]:
        given = SIZES[choice.scale] | {"net": "lenet-2d", "lr": 0.01, "data_dir": choice.data_dir}
        return [
            Demo(title=title, method=method, alpha=alpha, seed=seed, **given)
            for seed in choice.seeds
            for title, (method, alpha) in METHODS.items()
        ]

    def where(self, work: Demo) -> Row:
        return {"method": work.title, "seed": work.seed}

    def report(self, rows: list[Row]) -> Report:
        return Report({"accuracy": accuracy_table(rows)}, {"demo": figure(rows)}, findings(rows))

    def claims(self) -> list[Claim]:
        text = "After a download the local accuracy drops, and MAP mitigates it"
        return [Claim(text, dropped_and_mitigated)]


STUDIES.add("two-client-demo")(TwoClientDemo())


def titles(rows: list[Row]) -> list[str]:
    """The methods that have numbers, in the figure's order."""
    there = {r["method"] for r in rows}
    return [title for title in METHODS if title in there]


def accuracies(rows: list[Row], method: str, moment: str, client: str | None = "A") -> list[float]:
    """By round, the mean over seeds."""
    wanted = ("accuracy", method, moment, client)
    names = ("kind", "method", "moment", "client")
    by_round: dict[int, list[float]] = {}
    for r in rows:
        if tuple(r[name] for name in names) == wanted:
            by_round.setdefault(r["round"], []).append(r["x"])
    return [mean(by_round[number]) for number in sorted(by_round)]


def drops(rows: list[Row], method: str, client: str = "A") -> list[float]:
    """What a client loses with each download: its personal model of one round above the download of
    the next."""
    after = accuracies(rows, method, "personal", client)
    before = accuracies(rows, method, "download", client)
    return [a - b for a, b in zip(after, before[1:], strict=False)]


def shown(rows: list[Row]) -> int:
    """The round that is looked at."""
    return next(int(r["round"]) for r in rows if r["kind"] == "feature")


def view(rows: list[Row], method: str, moment: str, seed: int) -> View:
    """What a model sees at a moment of the round that is looked at."""
    mine = [r for r in rows if (r["method"], r["moment"], r["seed"]) == (method, moment, seed)]
    classes = sum(r["kind"] == "proxy" for r in mine)
    return View(mine, set(range(classes if moment == "aggregate" else classes // 2)))


def figure(rows: list[Row]) -> Figure:
    """A row for each method: three pictures of the plane of the first seed, then the accuracies,
    mean over seeds."""
    methods, first = titles(rows), min(r["seed"] for r in rows)
    drawn = Figure(figsize=(14, 3.5 * len(methods) + 0.4), layout="constrained")
    widths = {"width_ratios": [1] * len(MOMENTS) + [1.15]}
    grid = drawn.subplots(len(methods), 1 + len(MOMENTS), squeeze=False, gridspec_kw=widths)
    for i, method in enumerate(methods):
        line = grid[i]
        for axes, (moment, title) in zip(line, MOMENTS.items(), strict=False):
            draw(axes, view(rows, method, moment, first))
            title = f"Seed {first}, round {shown(rows)}: {title}"
            axes.set_title(title, loc="left", fontsize=9)
        downloaded, personal = (accuracies(rows, method, m) for m in ("download", "personal"))
        segments(line[-1], downloaded, personal)
        title = "Client A, own test images, mean of seeds"
        line[-1].set_title(title, loc="left", fontsize=10)
        look = {"rotation": 90, "ha": "center", "va": "center", "fontsize": 12, "weight": "bold"}
        line[0].annotate(method, (-0.24, 0.5), xycoords="axes fraction", **look)
    low = min(min(axes.get_ylim()) for axes in grid[:, -1])
    for axes in grid[:, -1]:
        axes.set_ylim(low, 101)
    dots = {"downloaded model": DOWNLOADED, "personal model": PERSONAL}
    dot: dict[str, Any] = {"marker": "o", "linestyle": "", "markersize": 5}
    key(drawn, *(Line2D([], [], color=c, label=label, **dot) for label, c in dots.items()))
    return drawn


def segments(axes: Axes, downloaded: list[float], personal: list[float]) -> None:
    """Solid within a round, from the download to the personal model; dotted from there to the next
    download."""
    rounds, within = np.arange(1, len(personal) + 1), 0.6
    for i, number in enumerate(rounds):
        inside, heights = [number, number + within], [downloaded[i], personal[i]]
        axes.plot(inside, heights, "-", color=PERSONAL, linewidth=1.8)
        if i + 1 < len(rounds):
            between, heights = [number + within, number + 1], [personal[i], downloaded[i + 1]]
            axes.plot(between, heights, ":", color=DOWNLOADED, linewidth=1.4)
    axes.plot(rounds, downloaded, "o", color=DOWNLOADED, markersize=4)
    axes.plot(rounds + within, personal, "o", color=PERSONAL, markersize=4)
    axes.set_xlabel("round (solid: local training; dotted: next download)", fontsize=8)
    axes.set_ylabel("accuracy, %", fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=7)
    bare(axes)


def accuracy_table(rows: list[Row]) -> Table:
    """One line for each method."""
    head = [
        "method",
        "client A, downloaded",
        "personal",
        "mean drop after a download",
        "client B, downloaded",
        "personal",
        f"global, round {shown(rows)}",
        "last round",
    ]
    lines = []
    for method in titles(rows):
        seeds = [mine for mine in seeds_of(rows) if method in titles(mine)]
        numbers = zip(*(numbers_of(mine, method) for mine in seeds), strict=True)
        lines.append([method, *(Estimate.of(column).plain(1) for column in numbers)])
    caption = (
        "Accuracy in %: of the clients on their own test images, mean of the rounds; of the global "
        "model on every class; ± standard error over seeds"
    )
    return Table(caption, head, lines)


def numbers_of(rows: list[Row], method: str) -> tuple[float, ...]:
    """A line of that table, of one seed."""
    a, b = (
        [mean(accuracies(rows, method, moment, client)) for moment in ("download", "personal")]
        for client in CLIENTS
    )
    whole = accuracies(rows, method, "aggregate", None)
    return (*a, mean(drops(rows, method)), *b, whole[shown(rows) - 1], whole[-1])


def findings(rows: list[Row]) -> list[Finding]:
    """The paper's statements of this figure, by the seeds that have every method."""
    rows = [r for mine in seeds_of(rows) if titles(mine) == list(METHODS) for r in mine]
    if not rows:
        return []
    told = [much_worse(rows), mitigated(rows), not_suppressed(rows), more_discriminative(rows)]
    return [*by_seeds(told, len(seeds_of(rows))), kept(rows)]


def dropped_and_mitigated(claim: str, rows: list[Row]) -> Finding:
    """All statements of the figure hold; in part: one does, or does in part. What holds by
    construction does not count."""
    return together(claim, findings(rows)[:-1])


def much_worse(rows: list[Row]) -> Finding:
    """By five points on average; in part: by anything."""
    by_seed = [drops(mine, PLAIN) for mine in seeds_of(rows)]
    lost = [drop for some in by_seed for drop in some]
    average = Estimate.of([mean(some) for some in by_seed])
    numbers = (
        "With FedAvg, client A's downloaded model is worse than its personal model of the round "
        f"before in {sum(drop > 0 for drop in lost)} of {len(lost)} rounds of all seeds, by "
        f"{average.plain(1)} points on average and {max(lost):.1f} at most"
    )
    statement = (
        "The paper's 'could be much worse than the last personalized model', taken as "
        f"{MUCH_WORSE} points on average"
    )
    saved = gains(rows, drop_avoided)[OURS[0]]
    short = f"a download costs {average.plain(1)} points with FedAvg; MAP spares {saved} of them"
    much = average.above and average.mean >= MUCH_WORSE
    return Finding(statement, Verdict.of(much, average.above), numbers, short)


def seeds_of(rows: list[Row]) -> list[list[Row]]:
    """The rows of each seed."""
    return [[r for r in rows if r["seed"] == seed] for seed in sorted({r["seed"] for r in rows})]


def kept(rows: list[Row]) -> Finding:
    """What the authors' script logs: the model that a client of MAP keeps is not downloaded."""
    own = {method: mean(accuracies(rows, method, "personal")) for method in METHODS}
    numbers = (
        "The HPM, which the authors' script scores, stays on the client and loses nothing with a "
        f"download, by construction; client A's own model has {in_words(own, '.1f')}"
    )
    statement = "The paper's 'MAP could mitigate the performance degradation', for the HPM"
    return Finding(statement, Verdict.HOLDS, numbers)


def mitigated(rows: list[Row]) -> Finding:
    """The verdict is on the client that the paper shows; the other one is named beside it."""
    a, b = ({m: mean(drops(rows, m, client)) for m in METHODS} for client in CLIENTS)
    numbers = (
        "Mean drop from client A's personal model to its next download, in points: "
        f"{in_words(a, '.1f')} (client B: {in_words(b, '.1f')}); "
        f"client A is spared {from_fedavg(rows, drop_avoided)}"
    )
    statement = "The paper's 'MAP could mitigate the performance degradation', for the download"
    return Finding(statement, better(rows, drop_avoided), numbers)


def drop_avoided(rows: list[Row], method: str) -> float:
    """Of one seed: the larger, the less a download costs client A."""
    return -mean(drops(rows, method))


def not_suppressed(rows: list[Row]) -> Finding:
    """The norm of missing classes' proxies beside the others', mean over seeds."""
    ratios = {m: mean(norm_ratio(mine, m) for mine in seeds_of(rows)) for m in METHODS}
    numbers = (
        f"After client A's training in round {shown(rows)}, the norm of missing classes' proxies "
        f"beside that of observed ones: {in_words(ratios, '.2f')}; "
        f"it is larger by {from_fedavg(rows, norm_ratio)}"
    )
    statement = "The paper's 'suppressed towards zero in FedAvg, while MAP can alleviate this'"
    return Finding(statement, better(rows, norm_ratio), numbers)


def norm_ratio(rows: list[Row], method: str) -> float:
    """Of one seed: missing classes' proxies beside observed ones, after client A's training."""
    seen = view(rows, method, "local", rows[0]["seed"])
    return seen.norm(seen.missing) / seen.norm(seen.observed)


def more_discriminative(rows: list[Row]) -> Finding:
    """The aggregated model's accuracy in the round that is looked at."""
    whole = {m: aggregated(rows, m) for m in METHODS}
    numbers = (
        f"Accuracy of the aggregated model of round {shown(rows)} on every class, in %: "
        f"{in_words(whole, '.1f')}; MAP has {from_fedavg(rows, aggregated)}"
    )
    statement = "The paper's 'MAP can get more discriminative proxies'"
    return Finding(statement, better(rows, aggregated), numbers)


def aggregated(rows: list[Row], method: str) -> float:
    """The aggregated model's accuracy in the round that is looked at, mean over seeds."""
    return accuracies(rows, method, "aggregate", None)[shown(rows) - 1]


def in_words(values: dict[str, float], form: str) -> str:
    """Each method's value, as in "0.45 with FedAvg"."""
    return ", ".join(f"{x:{form}} with {m.replace(',', '')}" for m, x in values.items())


def gains(rows: list[Row], number: Callable[[list[Row], str], float]) -> dict[str, Estimate]:
    """How far MAP is above FedAvg in a number of one seed, for each value of alpha."""
    return {
        m: Estimate.of([number(mine, m) - number(mine, PLAIN) for mine in seeds_of(rows)])
        for m in OURS
    }


def from_fedavg(rows: list[Row], number: Callable[[list[Row], str], float]) -> str:
    """These gains in words, with their errors over seeds."""
    told = [f"{gain} with {m.split(', ')[1]}" for m, gain in gains(rows, number).items()]
    return f"{' and '.join(told)} beside FedAvg"


def better(rows: list[Row], number: Callable[[list[Row], str], float]) -> Verdict:
    """MAP is above FedAvg with both values of alpha, by the error over seeds; in part: with one."""
    above = [gain.above for gain in gains(rows, number).values()]
    return Verdict.of(all(above), any(above))
