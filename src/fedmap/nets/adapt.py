"""Any module with a linear last layer as a net: what goes into that layer are the features, the
layer itself is the classifier."""

import torch
from torch import Tensor, nn

from fedmap.errors import FedmapError
from fedmap.nets.base import Net


class Adapted(Net):
    """A module whose last layer was taken out, and that layer, with its bias if it has one."""

    def __init__(self, features: nn.Module, classifier: nn.Linear) -> None:
        # the module comes with its own classifier and its own initialization
        nn.Module.__init__(self)
        self.features = features
        self.classifier = classifier


def adapt(module: nn.Module, shape: tuple[int, ...], classes: int) -> Net:
    """Split a module for samples of this shape: the linear layer that it registers last becomes the
    classifier.

    The module is taken over, not copied: an identity takes the layer's place in it."""
    name, last = _last_linear(module, classes)
    samples = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))
    training = module.training
    features = _without(module.eval(), name, last, samples.to(last.weight.device), classes)
    if features is None:
        raise FedmapError(
            f"net {type(module).__name__}: its output is not what its last linear layer {name!r} "
            "gives; register the classifier last, call it last, and return its output alone "
            "(softmax belongs to the loss)"
        )
    return Adapted(features, last).train(training)


def _last_linear(module: nn.Module, classes: int) -> tuple[str, nn.Linear]:
    linear = [pair for pair in module.named_modules() if isinstance(pair[1], nn.Linear)]
    if not linear:
        raise FedmapError(
            f"net {type(module).__name__} has no linear layer; its last layer must be an nn.Linear "
            "with one output for each class"
        )
    name, last = linear[-1]
    assert isinstance(last, nn.Linear)
    if last.out_features != classes:
        raise FedmapError(
            f"net {type(module).__name__}: its last linear layer {name!r} has {last.out_features} "
            f"outputs, but there are {classes} classes"
        )
    return name, last


@torch.no_grad()
def _without(
    module: nn.Module, name: str, last: nn.Linear, samples: Tensor, classes: int
) -> nn.Module | None:
    """The module without its last layer; None where the output is not that layer's."""
    passed: list[tuple[Tensor, Tensor]] = []  # what went into the layer and what came out
    hook = last.register_forward_hook(
        lambda layer, inputs, output: passed.append((inputs[0], output))
    )
    logits = module(samples)
    hook.remove()
    if (
        len(passed) != 1
        or not isinstance(logits, Tensor)
        or logits.shape != (len(samples), classes)
    ):
        return None
    before, after = passed[0]
    if not torch.equal(logits, after):
        return None
    if not name:  # the module is the layer itself
        return nn.Identity()
    module.set_submodule(name, nn.Identity())
    return module if torch.equal(module(samples), before) else None
