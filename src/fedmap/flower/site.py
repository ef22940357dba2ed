"""What a site does with a message: it says what it offers, or does a task on its own data and keeps
its state to itself."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import RecordDict

from fedmap import kernels, values
from fedmap.data import load
from fedmap.data.dataset import Dataset
from fedmap.errors import FedmapError
from fedmap.federation import ClientData
from fedmap.flower.keys import check_site_name
from fedmap.flower.records import arrays, message
from fedmap.flower.sites import Sites
from fedmap.flower.states import Moment, States
from fedmap.flower.terms import Answer, Hello, Offer, Order, fit, listed, offer
from fedmap.methods import METHODS
from fedmap.nets import NETS
from fedmap.params import checked
from fedmap.registry import Registry
from fedmap.scores import right_and_total
from fedmap.simulate.result import model_notes, named_values
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Reply, Setup, do
from fedmap.values import Values

# What the reader of a site's data can be told in --node-config, and its name among the settings.
OPTIONS = {
    "size": "size",
    "label": "label_column",
    "categories": "categories",
    "scale": "scale",
}


class Site:
    """One site: its name, its data and the folder of its private files, as `--node-config` says."""

    def __init__(self, config: Mapping[str, object]) -> None:
        for key in ("site", "data", "states"):
            if not isinstance(config.get(key), str) or not config[key]:
                raise FedmapError(
                    f"this node has no {key!r} in its --node-config; it should be like "
                    '\'site="oslo" data="folder:/data/xray" states="/var/lib/fedmap"\''
                )
        self.name = str(config["site"])
        check_site_name(self.name)
        self.data = str(config["data"])
        self.data_dir = Path(str(config["data-dir"])) if "data-dir" in config else None
        self.states = Path(str(config["states"])).expanduser()
        self.device = str(config["device"]) if "device" in config else None
        self.options: dict[str, Any] = {
            name: config[key] for key, name in OPTIONS.items() if key in config
        }
        if "categories" in self.options:
            self.options |= {"categories": listed(str(config["categories"]))}

    def dataset(self) -> Dataset:
        """All of the site's own samples."""
        return load(self.data, self.data_dir, **self.options)

    def hello(self, hello: Hello) -> Offer:
        """What this site offers."""
        return offer(self.name, self.dataset(), hello, kernels.available())

    def answer(self, order: Order, down: Values) -> RecordDict:
        """Do a task. What the site keeps is on its disk before the answer leaves."""
        setup = self._setup(order)
        initial = setup.method.client_state(setup.initial)
        states = States(self.states, order.run, self.name, initial)
        now = Moment(order.start, order.round)
        with states.locked(), setup.in_force():
            state, note = states.before(now, order.counted)
            if note:
                say(note)
            if setup.settings.dp_noise is not None:
                setup.noise_seed = states.secret(down, state)
            reply = do(setup, order.task, order.round, order.number, down, state)
            if order.task == "train":
                states.keep(now, order.counted, reply.state)
            if order.task == "personal":
                self._write_personal(states, setup, reply)
        # Which answers were given to which class stays here.
        sent = right_and_total(reply.tally) if order.task == "evaluate" else reply.up
        return message(Answer(numbers=reply.numbers, note=note), arrays(sent))

    def _setup(self, order: Order) -> Setup:
        """The run as this site knows it. Only methods and nets of installed packages: a server
        cannot make a site load a file."""
        settings = checked(Settings, order.settings | {"device": self.device}, "the order")
        if settings.attack != "none":
            raise FedmapError(f"the server asks for attack {settings.attack!r}; a site has none")
        asked: list[tuple[str | None, Registry[Any]]]
        asked = [(settings.method, METHODS), (settings.net, NETS)]
        for name, installed in asked:
            if name is not None and name not in installed:
                raise FedmapError(
                    f"the server asks for {installed.kind} {name!r}, which is not installed here"
                )
        dataset = fit(self.dataset(), order.terms, f"site {self.name}")
        own = ClientData.of(dataset, order.number, settings.partition_seed or 0)
        names = [f"site {number}" for number in range(order.sites)]
        own_data = {order.number: own}
        sites = Sites(order.terms, names, own_data, server_has_test=order.server_has_test)
        return Setup(settings, sites)

    def _write_personal(self, states: States, setup: Setup, reply: Reply) -> None:
        """The personal model with all that is needed to use it, and its accuracy."""
        own = setup.data(reply.key)
        entries = named_values(setup.initial, reply.result)
        states.write("personal.safetensors", values.save(entries, model_notes(setup, own)))
        held = dict(zip(setup.federation.dataset.classes, own.counts.tolist(), strict=True))
        report = {
            "site": self.name,
            "accuracy": reply.numbers["accuracy"],
            "accuracy_observed": reply.numbers["accuracy_observed"],
            "test_samples": len(own.test[1]),
            "training_samples": held,
        }
        states.write("accuracy.json", (json.dumps(report, indent=1) + "\n").encode())
        say(f"the personal model is {states.path / 'personal.safetensors'}")


def say(line: str) -> None:
    """A line in the SuperNode's log."""
    print(f"fedmap: {line}", file=sys.stderr, flush=True)


def private_umask() -> None:
    """Whatever this process writes is its owner's alone."""
    os.umask(0o077)
