"""A model as one flat vector: sending, averaging, pulling and inheriting are then single vector
operations."""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from fedmap.devices import FUSED
from fedmap.nets import Net


class Model:
    """A net whose parameters are views into one contiguous vector, with the gradients in a second.

    `vector` is the whole state: first `weights` (the parameters, classifier last), then `buffers`:
    parameters that need no gradient, running means and variances of batch norm, and at the end the
    buffers of whole numbers, such as batch norm's counter of batches."""

    def __init__(self, net: Net) -> None:
        self.net = net.eval()
        head = {p for p in net.classifier.parameters() if p.requires_grad}
        named = list(net.named_parameters())
        trained = sorted((n for n in named if n[1].requires_grad), key=lambda n: n[1] in head)
        frozen = [(name, parameter) for name, parameter in named if not parameter.requires_grad]
        buffers = list(net.named_buffers())
        floats = [(name, buffer) for name, buffer in buffers if buffer.is_floating_point()]
        whole = [(name, buffer) for name, buffer in buffers if not buffer.is_floating_point()]
        tensors: list[tuple[str, Tensor]] = [*trained, *frozen, *floats]
        self._shapes = {name: tensor.shape for name, tensor in [*tensors, *whole]}
        self.weight_count = sum(parameter.numel() for _, parameter in trained)
        self.features_part = slice(0, self.weight_count - sum(p.numel() for p in head))
        self.classifier_part = slice(self.features_part.stop, self.weight_count)
        frozen_count = sum(parameter.numel() for _, parameter in frozen)
        self.frozen_part = slice(self.weight_count, self.weight_count + frozen_count)

        flat = [tensor.detach().reshape(-1) for _, tensor in tensors]
        flat += [buffer.reshape(-1).to(flat[0].dtype) for _, buffer in whole]
        self._vector = torch.cat(flat)
        # What an optimizer steps on.
        self.weights = nn.Parameter(self._vector[: self.weight_count])
        self.grads = self.zeros()
        self.weights.grad = self.grads
        views = self.named(self._vector)
        for name, tensor in tensors:
            tensor.data = views[name]
        # A view of the vector cannot be of whole numbers: these are copied to and fro. What a mean
        # of counters has behind the point is kept beside them.
        self._whole = [
            (buffer, views[name], torch.zeros_like(views[name])) for name, buffer in whole
        ]
        for (_, parameter), view in zip(trained, self.named(self.grads).values(), strict=False):
            parameter.grad = view

    @property
    def vector(self) -> Tensor:
        """The whole state. It changes as the model does: clone what is to stay."""
        for buffer, view, fraction in self._whole:
            view.copy_(buffer).add_(fraction)
        return self._vector

    @property
    def buffers(self) -> Tensor:
        """The part of the vector that is not trained by gradients."""
        return self.vector[self.weight_count :]

    @property
    def names(self) -> list[str]:
        """The parameters and buffers in the order of the vector."""
        return list(self._shapes)

    def zeros(self) -> Tensor:
        """As many zeros as there are weights, where the model lives."""
        return self._vector.new_zeros(self.weight_count)

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
        self._vector.copy_(vector)
        for buffer, view, fraction in self._whole:
            buffer.copy_(view.round())
            fraction.copy_(view - buffer)
        return self

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits

    def features(self, x: Tensor) -> Tensor:
        """The input of the classifier."""
        h: Tensor = self.net.features(x)
        return h

    def classify(self, h: Tensor) -> Tensor:
        """Logits from features."""
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
        self._fused = fused(vectors)

    def step(self) -> None:
        """Move every vector against its gradient."""
        vectors = [v.detach() for v in self._vectors]
        grads = [v.grad for v in self._vectors]
        fixed = {"fused": self._fused, "dampening": 0.0, "nesterov": False, "maximize": False}
        sgd(vectors, grads, self._momenta, **fixed, **self._rates)  # type: ignore[arg-type]


def fused(vectors: Sequence[Tensor]) -> bool:
    """Has torch an optimizer that is one pass over each of these vectors?"""
    return all(vector.device.type in FUSED for vector in vectors)


def shorten(vectors: Sequence[Tensor], longest: float) -> None:
    """Scale vectors, taken as one, down to this length where they are longer. What is not finite
    stays as it is, to be noticed."""
    length = math.hypot(*(float(vector.norm()) for vector in vectors))
    if longest < length < math.inf:
        for vector in vectors:
            vector.mul_(longest / length)


class WorkingModels:
    """Models of one process on one device, built once and overwritten in place. A client's round
    takes as many as it needs."""

    def __init__(self, build: Callable[[], Net], device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._build = build
        self._models: list[Model] = []
        self._taken = 0

    def model(self, vector: Tensor) -> Model:
        """A model with this state, in evaluation mode, for one's own use until `release`."""
        if self._taken == len(self._models):
            self._models.append(Model(self._build().to(self.device)))
        model = self._models[self._taken].load(vector)
        self._taken += 1
        return model

    def release(self) -> None:
        """Give all models back."""
        self._taken = 0
