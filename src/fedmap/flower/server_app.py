"""The ServerApp: the ordinary run, whose engine is the federation's sites. Started again with the
same `out`, it goes on."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from pydantic import BaseModel, ConfigDict, Field

from fedmap.data import load
from fedmap.data.dataset import Dataset
from fedmap.errors import FedmapError
from fedmap.flower.engine import CountedRounds, FlowerEngine
from fedmap.flower.hall import Hall
from fedmap.flower.link import Link
from fedmap.flower.sites import Members, Sites
from fedmap.flower.terms import Terms, agree, fit, listed
from fedmap.methods import METHODS
from fedmap.nets import NETS
from fedmap.params import checked
from fedmap.simulate.result import Result
from fedmap.simulate.run import Run
from fedmap.simulate.settings import Settings

app = ServerApp()


class Options(BaseModel):
    """What the server needs beside the settings of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: str = Field(description="folder of the run, at the server")
    classes: str = Field("", description="all class names, with commas; the sites' union if empty")
    test_data: str = Field("", description="the server's own test data; the sites' tests if empty")
    min_sites: int = Field(2, ge=1, description="sites from which on a round counts")
    round_timeout: float = Field(600.0, gt=0, description="seconds that a site may take to answer")
    evaluate_every: int = Field(
        1, ge=1, description="rounds between two tests of the global model at the sites"
    )
    pin_nodes: bool = Field(
        True, description="a site stays at its node, which is its key; false without node keys"
    )
    moved: str = Field("", description="sites with a new key, with commas")
    anyway: bool = Field(
        False, description="go on also with other versions or on another processor"
    )


@app.main()
def main(grid: Grid, context: Context) -> None:
    """What Flower calls."""
    serve(grid, context.run_config)


def serve(grid: Grid, config: Mapping[str, Any]) -> Result:
    """Train with the sites that the grid reaches."""
    options, settings = read(config)
    out = Path(options.out).expanduser()
    members = Members.of(out)
    hall = Hall(
        Link(grid, options.round_timeout),
        members,
        listed(options.classes),
        options.min_sites,
        listed(options.moved),
        options.pin_nodes,
    )
    if members.terms is None:
        members.names.clear()
        members.nodes.clear()
        offers = hall.gather()
        members.terms = agree(offers, hall.classes, settings.kernels)
        members.save()
        hall.say(f"{len(offers)} sites, {len(members.terms.classes)} classes: {hall.names}")
    settings = settings.model_copy(update={"kernels": members.terms.kernels})
    sites = Sites(members.terms, members.names, test=test_data(options, members.terms))
    counted = CountedRounds()
    run = Run(
        settings,
        sites,
        out,
        counted,
        lambda setup, _: FlowerEngine(
            setup, counted, hall, out / "checkpoint" / "uploads", options.evaluate_every
        ),
    )
    result = run.go(True, lambda record: hall.say(line(record)), options.anyway)
    hall.say(f"done: {out}")
    return result


def read(config: Mapping[str, Any]) -> tuple[Options, Settings]:
    """The server's options and the run's settings in Flower's flat configuration."""
    flat = {name.replace("-", "_"): value for name, value in config.items()}
    own = {name: flat.pop(name) for name in list(flat) if name in Options.model_fields}
    options = checked(Options, own, "the server")
    params = {
        name.removeprefix("params."): flat.pop(name) for name in list(flat) if "params." in name
    }
    if flat.get("attack", "none") != "none":
        raise FedmapError("attack is for simulations; a federation of sites has no such setting")
    method = str(flat.get("method", "map"))
    if METHODS[method].pooled:  # an unknown name gets the sentence that names those that there are
        raise FedmapError(
            f"method {method} trains on everybody's samples in one place, and no site sends its "
            "samples: it is for simulations"
        )
    if flat.get("net"):
        NETS[str(flat["net"])]
    own_settings = {"data": "sites", "params": params, "min_clients": options.min_sites}
    given = {"on_bad_upload": "skip"} | flat | own_settings
    return options, Settings.of(given)


def test_data(options: Options, terms: Terms) -> Dataset | None:
    """The server's own test data: a dataset's test set, or all of its samples if it has none."""
    if not options.test_data:
        return None
    dataset = load(options.test_data)
    fitted = fit(dataset, terms, "the server")
    if len(fitted.test_y):
        return fitted
    return replace(fitted, test_x=fitted.train_x, test_y=fitted.train_y)


def line(record: dict[str, Any]) -> str:
    """A round in one line of the log."""

    def percent(name: str) -> str:
        return "-" if record[name] is None else f"{100 * record[name]:.1f}%"

    left = len(record.get("left_out", ()))
    return (
        f"round {record['round']}: {len(record['clients'])} sites, global "
        f"{percent('global_accuracy')}, personal {percent('personal_accuracy')}"
        + (f", {left} left out" if left else "")
    )
