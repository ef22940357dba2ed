"""What a run leaves, read from its folder: records, summary and models."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedmap import own_code, values
from fedmap.errors import FedmapError
from fedmap.federation import ClientData
from fedmap.methods import AnyMethod, Predictor
from fedmap.nets import AnyNet, Net, build
from fedmap.notebook import frame, html_table
from fedmap.own_code import short_name
from fedmap.registry import nearest
from fedmap.simulate.choose import SCORES, best_round
from fedmap.simulate.folder import Record, RunFolder
from fedmap.simulate.progress import percent
from fedmap.simulate.same import versions
from fedmap.simulate.settings import Settings, described, read_federation
from fedmap.simulate.tasks import Setup
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels

# The last rounds whose mean is reported beside the last round: single rounds swing by a point or
# two.
STEADY = 10
SAFE = re.compile(r"\w([\w .-]{0,98}\w)?")  # a name that every file system takes


@dataclass(frozen=True)
class Result:
    """A finished run. Accuracies are shares in 0..1 of the last round, or of the best one where
    samples were kept to choose it; `final` has the steadier means. The folder of a run without
    `out` goes with its result."""

    settings: Settings
    rounds: list[Record]
    final: Record
    folder: Path
    _about: dict[str, Any] = field(repr=False)  # the federation's shape and classes
    _trust: bool = field(default=False, repr=False)

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        method: str | type[AnyMethod] | None = None,
        net: AnyNet | None = None,
        trust: bool = False,
    ) -> "Result":
        """The result of a finished run's folder. Nothing that the folder names is run to read it.

        For its models, a method or net of the user's own is given here as it was given to the run:
        FILE.py:NAME, or what was given in Python. With `trust`, the files that the folder names
        are run."""
        folder = RunFolder.finished(Path(path))
        file = folder.path / "run.toml"
        settings = Settings.kept(described(file), {"method": method, "net": net})
        folder.tidy(settings.keep_states)
        about = read_federation(file)
        if not {"shape", "classes"} <= about.keys():
            raise FedmapError(f"{file} is damaged: it does not say the shape and the classes")
        return cls(settings, folder.records(), folder.final(), folder.path, about, trust)

    def to_pandas(self) -> Any:
        """The rounds as a pandas data frame, one row each."""
        single = [{n: v for n, v in r.items() if not isinstance(v, list)} for r in self.rounds]
        return frame(single)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        settings = self.settings
        lines = [
            ("data", short_name(settings.data)),
            ("net", short_name(settings.net or "")),
            ("clients", settings.clients),
            ("rounds", len(self.rounds)),
            ("global accuracy", percent(self.global_accuracy)),
            ("personal accuracy", percent(self.personal_accuracy)),
            ("personal, all clients", percent(self.final.get("personal_accuracy_all_clients"))),
        ]
        return html_table(f"{settings.label}, seed {settings.seed}", (), lines)

    @property
    def global_accuracy(self) -> float | None:
        """The aggregated model on the global test set; None where the method has no global
        model."""
        accuracy: float | None = self.final["global_accuracy"]
        return accuracy

    @property
    def personal_accuracy(self) -> float:
        """Mean over the round's clients of the personal model on the client's own test set."""
        accuracy: float = self.final["personal_accuracy"]
        return accuracy

    @property
    def global_model(self) -> nn.Module | None:
        """The net with the aggregated weights, in evaluation mode; it takes samples as
        `dataset.normalize` gives them."""
        name = "global.safetensors"
        if not (self.folder / name).exists():
            return None
        return self._models().model(self._values(name)["model"]).net

    def personal_model(self, client: int | str) -> Predictor:
        """The own model of a client, by number or name: samples (as `dataset.normalize` gives them)
        to logits."""
        file = self.personal_files[self.number_of(client)]
        models, entries = self._models(), self._values(file.relative_to(self.folder).as_posix())
        return self._method.predictor(models, entries)

    def number_of(self, client: int | str) -> int:
        """A client's number, by number or name."""
        count = len(self.final["personal_accuracy_per_client"])
        names = self.final.get("client_names", [])
        if isinstance(client, str):
            if client not in names:
                raise FedmapError(f"there is no client {client!r}; {nearest(client, names)}")
            return int(names.index(client))
        if not 0 <= client < count:
            raise FedmapError(f"there is no client {client}; clients are 0 to {count - 1}")
        return client

    @property
    def classes(self) -> list[str]:
        """The names of the classes."""
        return list(self._about.get("classes", ()))

    @property
    def named(self) -> bool:
        """Do the clients have names of their own, which are the same with every seed?"""
        return "clients" in self._about

    @property
    def personal_files(self) -> list[Path]:
        """Where the clients' own models lie, in the order of the clients; none before the end."""
        count = len(self.final.get("personal_accuracy_per_client", ()))
        return [
            self.folder / name for name in personal_files(self._about.get("clients", []), count)
        ]

    @cached_property
    def _method(self) -> AnyMethod:
        self._require_named()
        return self.settings.method_class(**self.settings.params)

    def _build(self) -> Net:
        self._require_named()
        shape, classes = tuple(self._about["shape"]), len(self._about["classes"])
        return build(self.settings.any_net, shape, classes, self.settings.seed)

    def _require_named(self) -> None:
        """Code that only the folder names is not run."""
        needed = {name: self.settings.code.get(name) for name in ("method", "net")}
        own_code.require_named(self.folder, needed, self.settings.own.values(), self._trust)

    def _models(self) -> WorkingModels:
        return WorkingModels(self._build)

    @cached_property
    def _initial(self) -> Model:
        return Model(self._build())

    def _values(self, name: str) -> Values:
        return load_named(self._initial, RunFolder(self.folder).intact(name))


def personal_files(names: Sequence[str], clients: int) -> list[str]:
    """Where in a run's folder the clients' own models lie: under their names, where all have names
    that can be files, else under their numbers."""
    plain = names and all(SAFE.fullmatch(name) for name in names)
    different = len({name.casefold() for name in names}) == len(names)
    stems = names if plain and different else [f"{number:05d}" for number in range(clients)]
    return [f"personal/{stem}.safetensors" for stem in stems]


def named_values(model: Model, entries: Values) -> Values:
    """A model under the net's own parameter names, for a file; a method's other entries get a
    plus before theirs."""
    others = {f"+{name}": value for name, value in entries.items() if name != "model"}
    return model.named(entries["model"]) | others


def load_named(model: Model, file: Path) -> Values:
    """The entries of a file that `named_values` gave names to. The model says what there must
    be."""
    found, expected = values.load(file), model.named(model.vector)
    for name, tensor in expected.items():
        shape = tuple(found[name].shape) if name in found else None
        if shape != tuple(tensor.shape):
            is_there = f"has {name!r} of shape {shape}" if shape is not None else f"lacks {name!r}"
            raise FedmapError(f"{file} {is_there}; its net has one of {tuple(tensor.shape)}")
    vector = torch.cat([found.pop(name).reshape(-1) for name in expected])
    return {"model": vector} | {name.removeprefix("+"): value for name, value in found.items()}


def model_notes(setup: Setup, own: ClientData | None = None) -> dict[str, str]:
    """What is needed to use a model without its run, for the header of its file: one note, because
    several would stand in any order. A personal model has the classes that its client has seen."""
    dataset = setup.federation.dataset
    about: dict[str, Any] = {
        "version": versions()["fedmap"],
        "method": setup.settings.method,
        "params": setup.settings.params,
        "net": setup.settings.net,
        "shape": list(dataset.shape),
        "pixels": dataset.train_x.dtype == torch.uint8,
        "classes": list(dataset.classes),
        "features": list(dataset.features),
        "mean": list(dataset.mean),
        "std": list(dataset.std),
        "observed": None if own is None else own.observed.nonzero().flatten().tolist(),
    }
    return {"fedmap": json.dumps(about)}


NAMES = (
    *("global_accuracy", "global_accuracy_unseen"),
    *("personal_accuracy", "personal_accuracy_observed"),
)


def summary(rounds: list[Record]) -> Record:
    """The last round, or the best one where samples were kept to choose it; and the mean of the
    last ten."""

    def steady(name: str) -> float | None:
        last = rounds[-STEADY:]
        known: list[float] = [r[name] for r in last if r.get(name) is not None]
        return sum(known) / len(known) if len(known) == len(last) else None

    best = best_round(rounds)
    kept = rounds[-1 if best is None else best - 1]
    names = [name for name in NAMES if name in kept]
    found = {"rounds": len(rounds)} | {name: kept[name] for name in names}
    if best is not None:
        found |= {"best_round": best} | {name: kept[name] for name in SCORES}
    return found | {f"{name}_last_{STEADY}": steady(name) for name in names}


def compact(final: Record) -> str:
    """JSON with one line for each entry, and for each row of a matrix."""
    text = json.dumps(final, indent=1) + "\n"
    return re.sub(r"\[[\d\s,]+\]", lambda row: " ".join(row[0].split()), text)
