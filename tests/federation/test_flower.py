"""A real federation on this machine: three sites with image folders of different classes, TLS and
node keys. A site and the server are killed while they work, and what is left has the simulator's
bits. All methods are tried in tests/flower, with messages that do not leave the process."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from fedmap import values
from fedmap.data import load
from fedmap.errors import FedmapError
from fedmap.federation import ClientData
from fedmap.flower.app_folder import write_app
from fedmap.flower.demo import Site, images, incomplete, lay_out
from fedmap.flower.lab import Lab
from fedmap.flower.sites import Sites
from fedmap.flower.terms import Hello, agree, fit, offer
from fedmap.simulate.result import Result
from fedmap.simulate.round import play_round
from fedmap.simulate.run import Run
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup

ALWAYS_ENOUGH = 600.0  # seconds, also on a busy machine
GIVEN: dict[str, Any] = {
    "method": "map", "rounds": 3, "net": "lenet", "epochs": 1.0, "batch": 32, "lr": 0.03,
    "fraction": 1.0,
}  # fmt: skip
TAKING_PART = [[0, 1, 2], [0, 2], [0, 1, 2]]  # bergen, oslo, trondheim


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> list[Site]:
    """Three sites that miss different classes."""
    return lay_out(incomplete(images().smaller(900), 3), tmp_path_factory.mktemp("sites"))


@pytest.fixture(scope="module")
def lab(places: list[Site], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """The federation of these sites."""
    configs = {
        site.name: {"data": f"folder:{site.data}", "states": str(site.states)} for site in places
    }
    with Lab(tmp_path_factory.mktemp("lab"), configs) as lab:
        yield lab


class Played(NamedTuple):
    """The federation's run, and the same in one process."""

    ours: Result
    expected: Result


@pytest.fixture(scope="module")
def played(lab: Lab, places: list[Site], tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Oslo is killed while it has an order, then the server in the middle of a round; both come
    back, and the run is started again."""
    folder = tmp_path_factory.mktemp("app")
    write_app(folder, GIVEN | {"min_sites": 2, "round_timeout": 300.0})
    run = folder / "run"
    thread, errors = in_thread(lambda: lab.run_app(folder, within=2 * ALWAYS_ENOUGH))

    def wait_for_round(number: int) -> None:
        wait_for(
            lambda: whole_rounds(run) >= number or not thread.is_alive(),
            f"round {number} was not played",
        )
        assert thread.is_alive(), errors

    wait_for_round(1)
    lab.end_site("oslo", signal.SIGKILL)
    wait_for_round(2)
    lab.stop_link(signal.SIGKILL)
    thread.join(ALWAYS_ENOUGH)
    assert errors, "the run was finished before the server was killed"
    lab.start_link()
    lab.restart_site("oslo")
    wait_for(lambda: online(lab) == 3, "the sites did not come back")
    lab.run_app(folder, within=ALWAYS_ENOUGH)
    return Played(Result.read(run), simulated(places, tmp_path_factory.mktemp("simulated")))


def simulated(places: list[Site], out: Path) -> Result:
    """The same sites in one process; those take part that did."""
    names = sorted(site.name for site in places)
    folders = {site.name: site.data for site in places}
    data = [load(f"folder:{folders[name]}") for name in names]
    hellos = [offer(n, d, Hello(), native=True) for n, d in zip(names, data, strict=True)]
    terms = agree(hellos, ())
    own = {k: ClientData.of(fit(d, terms, f"site {names[k]}"), k) for k, d in enumerate(data)}
    settings = Settings.of(GIVEN | {"data": "sites"})

    def play(setup: Setup, engine: Any, round: int, state: Any) -> Any:
        return play_round(setup, engine, round, state, TAKING_PART[round - 1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedmap.simulate.run.play_round", play)
        return Run(settings, Sites(terms, names, own), out).go()


def same_tensors(one: Path, other: Path) -> bool:
    left, right = values.load(one), values.load(other)
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def personal(site: Site) -> Path:
    """The personal model that the site's newest run has left."""
    found = site.states.glob("*/personal.safetensors")
    return max(found, key=lambda path: path.stat().st_mtime)


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as wrong:
            errors.append(wrong)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ALWAYS_ENOUGH
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def whole_rounds(run: Path) -> int:
    """Those that count after a kill; a line in rounds.jsonl comes before the commit."""
    file = run / "checkpoint/commit.json"
    return int(json.loads(file.read_text())["round"]) if file.exists() else 0


def online(lab: Lab) -> int:
    try:
        nodes = lab.flwr("supernode", "ls", "lab")["nodes"]
    except FedmapError:
        return 0
    return sum(node["status"] == "online" for node in nodes)


def participations(site: Site, run: Path) -> int:
    """How many rounds the site's HPM has inherited from, by its newest state."""
    name = json.loads((run / "sites.json").read_text())["run"]
    slots = (site.states / f"{site.name}-{name}").glob("state-*.safetensors")
    return max(int(values.load(slot)["participations"]) for slot in slots)


def test_a_killed_site_and_a_killed_server_change_no_bit_of_what_is_left(
    played: Played, places: list[Site]
) -> None:
    ours, expected = (result.folder for result in played)
    assert same_tensors(ours / "global.safetensors", expected / "global.safetensors")
    for number, site in enumerate(sorted(places, key=lambda site: site.name)):
        other = expected / f"personal/{number:05d}.safetensors"
        assert same_tensors(personal(site), other), site.name
        assert participations(site, ours) == sum(number in part for part in TAKING_PART)


def test_the_records_are_the_simulators(played: Played) -> None:
    ours, expected = played
    assert ["left_out" in record for record in ours.rounds] == [False, True, False]
    for round, (mine, theirs) in enumerate(zip(ours.rounds, expected.rounds, strict=True), 1):
        # While oslo is away, its test samples are too.
        apart = {"seconds", "left_out"} | ({"global_accuracy"} if round == 2 else set())
        assert without(mine, apart) == without(theirs, apart)
    # Sites do not tell which class was taken for which: what follows from that alone is not known.
    unknown = {name for name, value in ours.final.items() if value is None}
    left = {"confusion", "macro_f1", "balanced_accuracy", "accuracy_per_class"}
    assert {name.partition("_")[2] for name in unknown} <= left
    apart = unknown | {"global_accuracy_last_10"}
    assert without(ours.final, apart) == without(expected.final, apart)


def without(numbers: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if name not in names}


@pytest.mark.usefixtures("played")
def test_nothing_of_a_site_goes_through_the_server(lab: Lab, places: list[Site]) -> None:
    """The SuperLink's database and the run folders hold no private state. (What went through the
    wire is searched where messages can be read, in tests/flower.)"""
    stored = [path.read_bytes() for path in lab.folder.glob("superlink.db*")]
    assert stored
    for site in places:
        for path in site.states.rglob("*.safetensors"):
            for tensor in values.load(path).values():
                content = tensor.numpy().tobytes()[:256]
                assert len(content) < 64 or not any(content in kept for kept in stored)
