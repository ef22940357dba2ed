"""What a federated method is: a client half, a server half, and three dictionaries of tensors
between them: `down` (server to client), `up` (client to server) and `state` (stays on the client;
no engine sends it anywhere)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast, get_args, get_origin

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from fedmap.client import Client, Training
from fedmap.errors import FedmapError
from fedmap.losses import Loss, cross_entropy
from fedmap.methods.parts.average import Rule
from fedmap.params import checked
from fedmap.registry import Registry, headline, nearest
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels

Predictor = Callable[[Tensor], Tensor]


class MethodParams(BaseModel):
    """Base of every method's parameters: checked once, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


P = TypeVar("P", bound=MethodParams)


class Local(NamedTuple):
    """What a client's round leaves."""

    up: Values  # to the server
    state: Values  # stays on the client
    personal: Values  # the client's own model now; `predictor` says how it predicts


class Upload(NamedTuple):
    """What reached the server from one client. Weights of a round sum to 1."""

    client: int
    weight: float
    up: Mapping[str, Tensor]  # may lie in a file, and is read there entry by entry


class Server(NamedTuple):
    """What the server half sees in one round."""

    round: int
    clients: int  # in the whole federation
    training: Training
    model: Callable[[Tensor], Model]  # server.model(vector): a working model with this state
    public: Tensor  # the method's `public_samples` unlabeled samples of the global test set
    rng: np.random.Generator
    rule: Rule = Rule()
    averaged: set[str] = set()  # entries that `mean` was asked for

    def mean(self, uploads: Sequence[Upload], name: str) -> Tensor:
        """The average of one entry over the uploads: their weighted mean, or what the run has
        chosen in its place (`aggregate`)."""
        self.averaged.add(name)
        if self.rule.kind == "mean":
            return mean(uploads, name)
        return self.rule.of([upload.up for upload in uploads], name)


class Method(Generic[P]):
    """A federated algorithm. The base is FedAvg's frame: download the model, train, upload it,
    average.

    A subclass names its parameters, `class Mine(Method[MineParams])`, overrides only what differs,
    and is registered with `@register`."""

    Params: ClassVar[type[MethodParams]] = MethodParams
    # Named sets of parameter values: -p preset=NAME.
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    # Settings of a run that the method wants where the user does not say otherwise, e.g. a clip.
    wants: ClassVar[dict[str, Any]] = {}
    # Entries of `up` beside `trained`, or that hold something private, each with what and why.
    sends: ClassVar[dict[str, str]] = {}
    # Entries of `up` that are the same entry of `down` after training; any other is in `sends`.
    trained: ClassVar[tuple[str, ...]] = ("model",)
    # How many of the global test set's samples the server half sees, without labels. The accuracy
    # on the others is reported too.
    public_samples: ClassVar[int] = 0
    # What the server half does with single uploads other than averaging them by `server.mean`. No
    # other average than the mean is possible then, and no differential privacy.
    not_averaged: ClassVar[str] = ""
    # Is what the server keeps of all clients a plain mean, so that weights by samples would mix
    # two objectives?
    uniform_weights_only: ClassVar[bool] = False
    # Is there no federation at all, but one training on everybody's samples? Such a method is there
    # to compare with. Its clients keep no state, and no site takes part.
    pooled: ClassVar[bool] = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "Params" not in vars(cls):
            cls.Params = _declared_params(cls)

    def __init__(self, **given: Any) -> None:
        for name in given.keys() & Training.model_fields.keys() - self.Params.model_fields.keys():
            raise FedmapError(
                f"method {self.name()} has no parameter {name!r}: it is a setting of the run, "
                f"--{name.replace('_', '-')}"
            )
        params = checked(
            self.Params,
            self._with_preset(given),
            f"method {self.name()}",
            ("preset",) if self.presets else (),
        )
        self.params: P = cast(P, params)

    @classmethod
    def name(cls) -> str:
        """The name that users choose it by."""
        return cls.__name__.lower()

    @classmethod
    def line(cls) -> str:
        """What it is, in one line."""
        return headline(cls)

    @classmethod
    def _with_preset(cls, given: dict[str, Any]) -> dict[str, Any]:
        values = dict(given)
        preset = values.pop("preset", None)
        if preset is None:
            return values
        if preset not in cls.presets:
            known = nearest(str(preset), cls.presets) if cls.presets else "it has none"
            raise FedmapError(f"method {cls.name()} has no preset {preset!r}; {known}")
        return {**cls.presets[preset], **values}

    # The client half.

    def client_state(self, model: Model) -> Values:
        """The state of a client that has never taken part, given the initial model. Its entries
        keep their shape for good."""
        return {}

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        """One participation: from what came down and what the client kept, to what goes up and
        what it keeps."""
        model = client.model(down["model"])
        client.train(model, self.local_loss(client, down, state), client.steps)
        trained = model.vector.clone()
        return Local(up={"model": trained}, state=state, personal={"model": trained})

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        """What local training minimizes, where nothing else of `local_round` differs."""
        return cross_entropy

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values | None:
        """The personal model that a client has kept, after the last round and given the last
        download; None where it comes from training the download again."""
        return None

    def downloaded(self, down: Values, state: Values) -> Values | None:
        """The model that a client has right after the download, before it trains; None where there
        is none."""
        return {"model": down["model"]}

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        """How a personal model turns samples into logits."""
        return models.model(personal["model"]).net

    # The server half.

    def start(self, model: Model) -> Values:
        """The server's state before the first round, given the initial model."""
        return {"model": model.vector.clone()}

    def download(self, state: Values) -> Values:
        """What every selected client gets."""
        return {"model": state["model"]}

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        """The server's new state. Uploads come in the order of client numbers."""
        return {"model": server.mean(uploads, "model")}

    def global_model(self, state: Values) -> Tensor | None:
        """The model that knows every class; None where the method has none."""
        return state["model"]


AnyMethod = Method[Any]


def _declared_params(method: type[AnyMethod]) -> type[MethodParams]:
    """The class in the brackets of `Method[...]`; of a type variable, its bound."""
    for base in vars(method).get("__orig_bases__", ()):
        if isinstance(get_origin(base), type) and issubclass(get_origin(base), Method):
            (params,) = get_args(base)
            return cast(type[MethodParams], getattr(params, "__bound__", params))
    return method.Params


def mean(uploads: Sequence[Upload], name: str) -> Tensor:
    """The weighted mean of one entry over the uploads, always summed in their order."""
    total = torch.zeros_like(uploads[0].up[name])
    for upload in uploads:
        total.add_(upload.up[name], alpha=upload.weight)
    return total


METHODS: Registry[type[AnyMethod]] = Registry("method")
M = TypeVar("M", bound=type[AnyMethod])


def register(method: M) -> M:
    """Class decorator: make a method available by its name."""
    METHODS.add(method.name())(method)
    return method
