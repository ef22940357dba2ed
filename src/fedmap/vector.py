"""A model as one flat vector: sending, averaging, pulling and inheriting are then single vector
operations."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from fedmap.nets import Net


class Model:
    """A net whose parameters are views into one contiguous vector, with the gradients in a second
    one.

    `vector` is the whole state: first `weights` (the parameters, classifier last), then `buffers`
    (the running means and variances of batch norm, and parameters that do not require a gradient).
    The counter of batches in batch norm is not part of it: nothing here depends on it."""

    def __init__(self, net: Net) -> None:
        self.net = net.eval()
        head = {parameter for parameter in net.classifier.parameters() if parameter.requires_grad}
        trained = [
            (name, parameter)
            for name, parameter in net.named_parameters()
            if parameter.requires_grad
        ]
        parameters = sorted(trained, key=lambda named: named[1] in head)
        frozen = [
            (name, parameter)
            for name, parameter in net.named_parameters()
            if not parameter.requires_grad
        ]
        statistics = [
            (name, buffer) for name, buffer in net.named_buffers() if buffer.is_floating_point()
        ]
        tensors: list[tuple[str, Tensor]] = [*parameters, *frozen, *statistics]
        self._shapes = {name: tensor.shape for name, tensor in tensors}
        self.weight_count = sum(parameter.numel() for _, parameter in parameters)
        self.features_part = slice(0, self.weight_count - sum(p.numel() for p in head))
        self.classifier_part = slice(self.features_part.stop, self.weight_count)

        self.vector = torch.cat([tensor.detach().reshape(-1) for _, tensor in tensors])
        self.weights = nn.Parameter(self.vector[: self.weight_count])  # what an optimizer steps on
        self.buffers = self.vector[self.weight_count :]
        self.grads = torch.zeros(self.weight_count)
        self.weights.grad = self.grads
        for (_, tensor), view in zip(tensors, self.named(self.vector).values(), strict=True):
            tensor.data = view
        for (_, parameter), view in zip(parameters, self.named(self.grads).values(), strict=False):
            parameter.grad = view

    @property
    def names(self) -> list[str]:
        """The parameters and buffers in the order of the vector."""
        return list(self._shapes)

    def named(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of a vector by the net's own parameter and buffer names, e.g. for a file."""
        ends = list(accumulate(shape.numel() for shape in self._shapes.values()))
        return {
            name: vector[end - shape.numel() : end].view(shape)
            for end, (name, shape) in zip(ends, self._shapes.items(), strict=True)
            if end <= len(vector)
        }

    def load(self, vector: Tensor) -> "Model":
        """Take over another model's state."""
        self.vector.copy_(vector)
        return self

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits

    def features(self, x: Tensor) -> Tensor:
        """The input of the classifier."""
        h: Tensor = self.net.features(x)
        return h

    def classify(self, h: Tensor) -> Tensor:
        logits: Tensor = self.net.classifier(h)
        return logits


class SGD:
    """SGD with momentum and weight decay, one fused pass over each vector.

    The functional form of torch: its optimizer classes import torch's compiler on first use,
    seconds in every worker."""

    def __init__(
        self,
        vectors: Sequence[nn.Parameter],
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        self._vectors = vectors
        self._momenta: list[Tensor | None] = [None] * len(vectors)
        self._rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}

    def step(self) -> None:
        """Move every vector against its gradient."""
        vectors, grads = [v.detach() for v in self._vectors], [v.grad for v in self._vectors]
        sgd(
            vectors,
            grads,
            self._momenta,
            fused=True,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            **self._rates,
        )  # type: ignore[arg-type]


def shorten(vector: Tensor, longest: float) -> None:
    """Scale a vector down to this length where it is longer. One that is not finite stays as it is,
    to be noticed."""
    length = float(vector.norm())
    if longest < length < math.inf:
        vector.mul_(longest / length)


class Bench:
    """Working models for one process, built once and overwritten in place: a client's round takes
    as many as it needs."""

    def __init__(self, build: Callable[[], Net]) -> None:
        self._build = build
        self._models: list[Model] = []
        self._taken = 0

    def model(self, vector: Tensor) -> Model:
        """A model with this state, in evaluation mode, of one's own until `clear`."""
        if self._taken == len(self._models):
            self._models.append(Model(self._build()))
        model = self._models[self._taken].load(vector)
        self._taken += 1
        return model

    @property
    def names(self) -> list[str]:
        return Model(self._build()).names

    def clear(self) -> None:
        """Give all models back."""
        self._taken = 0
