"""A diagnosis, of a federation or of a finished run."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from fedmap.diagnosis import picture, words
from fedmap.diagnosis.numbers import Numbers, Trained, local_rounds, numbers_of
from fedmap.diagnosis.rules import Rule, advised
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.notebook import html_table
from fedmap.report.plots import save
from fedmap.simulate.folder import RunFolder
from fedmap.simulate.result import STEADY, Result, load_named
from fedmap.simulate.same import difference
from fedmap.simulate.settings import FEDERATION, Settings, read_federation, read_toml
from fedmap.simulate.tasks import Setup

# What a local round is measured with, whatever the run does besides: FedAvg, here and now.
PLAIN: dict[str, Any] = {
    "method": "fedavg",
    "params": {},
    "device": None,
    "engine": "local",
    "workers": 1,
    "aggregate": "mean",
    "attack": "none",
    "dp_clip": None,
    "dp_noise": None,
    "validation": None,
    "patience": None,
}
FLAGS = {"label_column": "label", "partition_params": "partition-param"}


@dataclass(frozen=True)
class Diagnosis:
    """What a federation suffers from: `numbers`, `trained` (what one local round did to some
    clients), `sentences` by subject, and `advice`, each with the study behind it."""

    federation: Federation = field(repr=False)
    numbers: Numbers
    trained: list[Trained]
    options: list[str] = field(default_factory=list)  # that lead to the same data in a shell

    @property
    def sentences(self) -> dict[str, str]:
        """What it suffers from, in words."""
        return words.sentences(self.numbers)

    @property
    def advice(self) -> list[Rule]:
        """The rules that apply, the most important first."""
        return advised(self.numbers)

    def command(self, rule: Rule) -> str:
        """What to type, on the same data."""
        return f"{rule.command} {shlex.join(self.options)}".strip() if rule.command else ""

    def figure(self) -> Figure:
        """Who holds what, how far proxies move, and what a download costs."""
        return picture.figure(self.federation, self.trained)

    def save(self, path: Path | str) -> Path:
        """Write the figure, in the format of the path's ending."""
        return save(self.figure(), Path(path))

    def json(self) -> dict[str, Any]:
        """Everything that is said, for scripts."""
        names = self.federation.client_names
        return {
            "numbers": asdict(self.numbers) | {"drop": self.numbers.drop},
            "trained": [one._asdict() | {"client": names[one.client]} for one in self.trained],
            "sentences": self.sentences,
            "advice": [
                {"when": rule.when, "try": rule.advice, "command": self.command(rule)}
                | {"study": rule.study, "page": rule.page, "shown": rule.shown}
                for rule in self.advice
            ],
        }

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        tried = [(rule.advice, f"{rule.study} ({rule.page}): {rule.shown}") for rule in self.advice]
        found = html_table("What this federation suffers from", (), list(self.sentences.items()))
        return found + html_table("What to try first", ("try", "backed by"), tried)


def inspect(
    subject: Federation | Result | Path | str,
    *,
    federation: Federation | None = None,
    trust: bool = False,
    **given: Any,
) -> Diagnosis:
    """What a federation suffers from, and what to try first.

    The subject is a federation, or a finished run: its result or its folder. Some clients are
    trained for one local round of FedAvg, from the initial model or from the run's global model;
    the same seed gives the same numbers. Of a federation keyword arguments are the settings of
    `fedmap run --help`: net, epochs, lr, seed and so on. A run on arrays is given its `federation`
    again; with `trust`, Python files that the run's folder names are run."""
    if isinstance(subject, Federation):
        return _of_federation(subject, given)
    if not isinstance(subject, Result):
        subject = Result.read(subject)
    return _of_run(subject, federation, trust, given)


def _of_federation(federation: Federation, given: dict[str, Any]) -> Diagnosis:
    known = {"data": federation.dataset.name} | federation.origin
    settings = Settings.of(known | given | PLAIN, federation.dataset.defaults)
    setup = Setup(settings, federation)
    trained = local_rounds(setup, setup.initial.vector.clone(), 1)
    numbers = numbers_of(federation, trained, "the initial model", None)
    return Diagnosis(federation, numbers, trained, flags(given if "data" in given else known))


def _of_run(
    result: Result, federation: Federation | None, trust: bool, given: dict[str, Any]
) -> Diagnosis:
    file = result.folder / "run.toml"
    if federation is None and result.settings.data == "arrays":
        raise FedmapError(
            f"the run in {result.folder} is on arrays given in Python; give them again with "
            "fedmap.inspect(result, federation=...)"
        )
    told = read_toml(file, {k: v for k, v in (PLAIN | given).items() if v is not None}, trust)
    settings = Settings.of(told | PLAIN)
    federation = federation or settings.federation()
    if differs := difference(read_federation(file), federation):
        raise FedmapError(f"{differs} since the run in {result.folder}")
    setup = Setup(settings, federation)
    model = result.folder / "global.safetensors"
    start, begun = setup.initial.vector.clone(), "the initial model"
    if model.exists():
        start = load_named(setup.initial, RunFolder(result.folder).intact(model.name))["model"]
        begun = "the run's global model"
    trained = local_rounds(setup, start, len(result.rounds) + 1)
    numbers = numbers_of(federation, trained, begun, about(result))
    return Diagnosis(federation, numbers, trained, flags(told))


def about(result: Result) -> dict[str, Any]:
    """A run in a few numbers, means of its last rounds."""
    last = result.rounds[-STEADY:]
    found: dict[str, Any] = {
        "method": result.settings.label,
        "rounds": len(result.rounds),
        "last": STEADY,
    }
    names = {
        "global": "global_accuracy",
        "personal": "personal_accuracy",
        "download": "personal_accuracy_download",
    }
    for short, name in names.items():
        known = [record[name] for record in last if record.get(name) is not None]
        found[short] = sum(known) / len(known) if known else None
    return found


def flags(settings: dict[str, Any]) -> list[str]:
    """The settings of data, clients and net as options of a command."""
    found: list[str] = []
    for name in ("data", *sorted(FEDERATION - {"data"}), "net"):
        value, flag = settings.get(name), f"--{FLAGS.get(name, name.replace('_', '-'))}"
        if isinstance(value, dict):
            found += [word for item in value.items() for word in (flag, "{}={}".format(*item))]
        elif isinstance(value, Sequence) and not isinstance(value, str) and value:
            found += [flag, ",".join(map(str, value))]
        elif isinstance(value, (str, int, float)):
            found += [flag, str(value)]
    return found
