"""What `fedmap inspect` does once its options are read: the diagnosis, and what a person sees of
it."""

import json
from pathlib import Path
from textwrap import wrap
from typing import Any

from fedmap.cli.parsing import printable
from fedmap.data.registry import spoken
from fedmap.diagnosis import Diagnosis, inspect
from fedmap.diagnosis.words import missing_classes
from fedmap.errors import FedmapError
from fedmap.simulate.settings import Settings

WIDTH = 100  # columns
OF_A_RUN = {
    "net",
    "data",
    "data_dir",
}  # what may be given beside a run: its code, where its data is
NO_RULE = (
    "No rule applies: nothing here is what fedmap's methods are for. Begin with fedavg, beside "
    "each client alone: fedmap compare --methods local,fedavg"
)


def inspected(run: Path | None, trust: bool, settings: dict[str, Any]) -> Diagnosis:
    """The diagnosis of a run, or of the data that the settings name."""
    if run is None:
        return inspect(Settings.of(settings | {"method": "fedavg"}).federation(), **settings)
    if others := settings.keys() - OF_A_RUN:
        raise FedmapError(
            f"the run in {run} has its own {spoken(min(others))}; give a run, or data and options"
        )
    return inspect(run, trust=trust, **settings)


def show(found: Diagnosis, as_json: bool) -> None:
    """What a federation suffers from and what to try first, on standard output."""
    if as_json:
        print(json.dumps(found.json(), indent=1))
        return
    say(f"{found.federation.dataset.name}: {found.numbers.clients} clients")
    for line in missing_classes(found.federation):
        print(printable(line))
    for subject, sentence in found.sentences.items():
        say(f"{subject}: {sentence}")
    print("\nTry first:" if found.advice else f"\n{NO_RULE}")
    for number, rule in enumerate(found.advice, 1):
        say(f"{number}. {rule.advice}", rest="   ")
        say(f"because: {rule.when}", "   ", "   ")
        say(f"backed by: {rule.study}: {rule.shown} ({rule.page})", "   ", "   ")
        if rule.command:
            print(printable(f"   {found.command(rule)}"))


def say(text: str, first: str = "", rest: str = "") -> None:
    """Text in lines of bounded width."""
    for line in wrap(printable(text), WIDTH, initial_indent=first, subsequent_indent=rest):
        print(line)
