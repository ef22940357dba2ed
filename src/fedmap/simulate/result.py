"""What a run leaves: records, summary and models, from memory or from its folder."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmap.errors import FedmapError
from fedmap.methods import Predictor, Values, find_method, tensor
from fedmap.nets import build
from fedmap.simulate.folder import RunFolder, load_values, save_values
from fedmap.simulate.settings import Settings, read_toml
from fedmap.vector import Bench, Model

Record = dict[str, Any]
# the last rounds whose mean is reported beside the last round: single rounds swing by a point or
# two
STEADY = 10


@dataclass(frozen=True)
class Result:
    """A finished run. Accuracies are shares in 0..1 of the last round; `final` has the steadier
    means."""

    settings: Settings
    rounds: list[Record]
    final: Record
    folder: Path | None
    _global_model: Callable[[], nn.Module | None] = field(repr=False)
    _personal_model: Callable[[int], Predictor] = field(repr=False)

    @property
    def global_accuracy(self) -> float | None:
        """The aggregated model on the global test set; None where the method has no global model."""
        value: float | None = self.rounds[-1]["global_accuracy"]
        return value

    @property
    def personal_accuracy(self) -> float:
        """Mean over the last round's clients of the personal model on the client's own test set."""
        value: float = self.rounds[-1]["personal_accuracy"]
        return value

    @property
    def global_model(self) -> nn.Module | None:
        """The net with the aggregated weights, in evaluation mode; it takes samples as
        `dataset.normalize` gives them."""
        return self._global_model()

    def personal_model(self, client: int) -> Predictor:
        """A client's own model: samples (as `dataset.normalize` gives them) to logits."""
        count = len(self.final["personal_accuracy_per_client"])
        if not 0 <= client < count:
            raise FedmapError(f"there is no client {client}; clients are 0 to {count - 1}")
        return self._personal_model(client)

    @classmethod
    def read(cls, path: Path | str) -> "Result":
        """The result of a finished run's folder."""
        folder = RunFolder(Path(path))
        if not folder.begun:
            raise FedmapError(f"{path} is not a run folder: it has no run.toml")
        if not folder.done:
            raise FedmapError(
                f"the run in {path} is not finished; go on with: fedmap resume {path}"
            )
        made = Settings.of(read_toml(folder.path / "run.toml"))
        about = tomllib.loads((folder.path / "run.toml").read_text())["federation"]
        method = find_method(made.method)(**made.params)

        def bench() -> Bench:
            return Bench(
                partial(
                    build, made.net or "", tuple(about["shape"]), len(about["classes"]), made.seed
                )
            )

        def global_model() -> nn.Module | None:
            file = folder.path / "global.safetensors"
            return method_net(bench(), from_file(bench(), file)) if file.exists() else None

        def personal_model(client: int) -> Predictor:
            return method.predictor(
                bench(), from_file(bench(), folder.path / f"personal/{client:05d}.safetensors")
            )

        rounds = [
            json.loads(line) for line in (folder.path / "rounds.jsonl").read_text().splitlines()
        ]
        final = json.loads((folder.path / "final.json").read_text())
        return cls(made, rounds, final, folder.path, global_model, personal_model)


def method_net(bench: Bench, values: Values) -> nn.Module:
    return bench.model(tensor(values, "model")).net


def to_file(model: Model, values: Values) -> bytes:
    """A model as a safetensors file under the net's own parameter names; a method's other entries
    keep their names."""
    named: Values = dict(model.named(tensor(values, "model")))
    return save_values(
        named | {f"+{name}": value for name, value in values.items() if name != "model"}
    )


def from_file(bench: Bench, path: Path) -> Values:
    """The entries that `to_file` wrote."""
    found = load_values(path)
    vector = torch.cat([tensor(found, name).reshape(-1) for name in bench.names])
    return {"model": vector} | {
        name[1:]: value for name, value in found.items() if name.startswith("+")
    }


def summary(rounds: list[Record]) -> Record:
    """The last round, and the mean of the last ten."""

    def steady(name: str) -> float | None:
        values = [record[name] for record in rounds[-STEADY:]]
        return None if None in values else sum(values) / len(values)

    names = [
        name
        for name in ("global_accuracy", "global_accuracy_unseen", "personal_accuracy")
        if name in rounds[-1]
    ]
    return (
        {"rounds": len(rounds)}
        | {n: rounds[-1][n] for n in names}
        | {f"{n}_last_{STEADY}": steady(n) for n in names}
    )


def per_class(
    correct: Tensor | None, labels: Tensor, classes: tuple[str, ...]
) -> dict[str, float | None] | None:
    """Accuracy on each class of the global test set; None for a class that the test set lacks."""
    if correct is None:
        return None
    hits, all_ = (
        torch.bincount(of, minlength=len(classes)).tolist() for of in (labels[correct], labels)
    )
    return {name: hit / n if n else None for name, hit, n in zip(classes, hits, all_, strict=True)}
