"""A model from its file alone. The note in the file's header says what else is needed: net, method,
classes, and how samples are scaled."""

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor, nn

from fedmap import own_code, values
from fedmap.errors import FedmapError
from fedmap.methods import METHODS, AnyMethod, Predictor, find_method
from fedmap.nets import NETS, AnyNet, build
from fedmap.simulate.result import load_named
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels

BATCH = 250  # samples that are asked at a time


class Notes(BaseModel):
    """What `model_notes` says of a model. What a later version adds is left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str
    method: str
    params: dict[str, Any]
    net: str
    shape: tuple[int, ...]  # of one sample
    pixels: bool  # are samples pixels from 0 to 255?
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    features: tuple[str, ...] = ()  # names of the values of a vector, where the data named them
    observed: tuple[int, ...] | None  # the client's own classes; None for a model without a client

    @classmethod
    def read(cls, path: Path) -> "Notes":
        """The note in the header of a model's file."""
        if not path.is_file():
            raise FedmapError(f"there is no file {path}")
        try:
            return cls.model_validate(json.loads(values.load_notes(path)["fedmap"]))
        except KeyError:
            raise FedmapError(
                f"{path} is no model of fedmap: its header has no note 'fedmap'"
            ) from None
        except (json.JSONDecodeError, ValidationError) as wrong:
            raise FedmapError(f"{path}: its note 'fedmap' is damaged ({wrong})") from None
        except Exception as wrong:  # a file of any other kind can raise anything
            raise FedmapError(
                f"{path} is no model of fedmap: not a safetensors file ({wrong})"
            ) from None


class OnRawSamples(nn.Module):
    """Samples as they are stored (pixels from 0 to 255, or raw values), in 32-bit floats, to the
    logits of a model that takes scaled ones. So nobody else needs to know how they are scaled."""

    def __init__(self, predictor: Predictor, notes: Notes) -> None:
        super().__init__()
        self.predictor = predictor
        self.largest = 255 if notes.pixels else 1
        self.shift: Tensor | None
        self.scale: Tensor | None
        over_pixels = (-1, *[1] * (len(notes.shape) - 1))  # one value for each channel
        # In double for vectors: a large mean would swallow the differences.
        kind = torch.float if notes.pixels else torch.double
        for name, numbers in (("shift", notes.mean), ("scale", notes.std)):
            known = torch.tensor(numbers, dtype=kind).view(over_pixels) if numbers else None
            self.register_buffer(name, known)

    def forward(self, samples: Tensor) -> Tensor:
        """The logits of a batch."""
        samples = samples / self.largest
        if self.shift is not None and self.scale is not None:
            samples = ((samples - self.shift) / self.scale).float()
        logits: Tensor = self.predictor(samples)
        return logits


@dataclass(frozen=True, eq=False)
class UsableModel:
    """A trained model that can be asked: a global one, or a client's own."""

    path: Path
    notes: Notes
    module: OnRawSamples  # in evaluation mode

    @classmethod
    def read(
        cls,
        path: Path | str,
        method: str | type[AnyMethod] | None = None,
        net: AnyNet | None = None,
        trust: bool = False,
    ) -> "UsableModel":
        """The model of a file that a run, `adapt` or a Flower site wrote. Code in a file of the
        user's own is not run because a note names it: `method` and `net` give it, FILE.py:NAME or
        what was given in Python; with `trust` it is run all the same."""
        path = Path(path)
        notes = Notes.read(path)
        needed: dict[str, Any] = {"net": notes.net if net is None else net}
        if notes.observed is not None:
            needed["method"] = notes.method if method is None else method
        own_code.require_named(path, needed, (method, net), trust)
        if isinstance(needed["net"], str) and not is_there(needed["net"], NETS):
            raise FedmapError(f"{path} needs net {notes.net!r}, which is not installed here")
        make = partial(build, needed["net"], notes.shape, len(notes.classes), seed=0)
        entries = load_named(Model(make()), path)
        predictor = _predictor(path, notes, WorkingModels(make), entries, needed.get("method"))
        module = OnRawSamples(predictor, notes).eval().requires_grad_(False)
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data, tensor.grad = tensor.data.clone(), None  # no longer a part of one vector
        return cls(path, notes, module)

    def logits(self, samples: Tensor) -> Tensor:
        """The logits of raw samples: pixels from 0 to 255, or values."""
        if tuple(samples.shape[1:]) != self.notes.shape:
            raise FedmapError(
                f"samples have shape {tuple(samples.shape[1:])}; the model takes {self.notes.shape}"
            )
        with torch.inference_mode():
            return torch.cat([self.module(part.float()) for part in torch.split(samples, BATCH)])

    def probabilities(self, samples: Tensor) -> Tensor:
        """For each raw sample the probability of each class."""
        return torch.softmax(self.logits(samples), 1)


def _predictor(
    path: Path,
    notes: Notes,
    models: WorkingModels,
    entries: Values,
    method: str | type[AnyMethod] | None,
) -> Predictor:
    """The net itself for a global model; a personal one is asked as its method says."""
    if method is None:
        return models.model(entries["model"]).net
    if isinstance(method, str) and not is_there(method, METHODS):
        raise FedmapError(
            f"{path} is a personal model of method {method!r}, which is not installed here; if it "
            "is a class in a file of yours, give it with --method FILE.py:CLASS"
        )
    try:
        chosen = find_method(method)(**notes.params)
    except FedmapError as wrong:
        raise FedmapError(f"{path}: {wrong}") from None
    try:
        return chosen.predictor(models, entries)
    except KeyError as missing:
        raise FedmapError(
            f"{path} lacks the entry '+{missing.args[0]}', which method {notes.method} needs"
        ) from None


def is_there(name: str, registered: Container[str]) -> bool:
    """Is it a name of an installed package, or of code of the user's own?"""
    return name in registered or ":" in name


def features_in_words(features: Sequence[str]) -> str:
    """The columns in their order; one that stands for a text's value is 1 or 0."""
    text = next((name for name in features if "=" in name), None)
    said = f" ({text} is 1 where the text is so, else 0)" if text else ""
    return ", ".join(features) + said
