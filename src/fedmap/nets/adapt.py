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
    whose = f"net {type(module).__name__}"
    linear = [
        (name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)
    ]
    if not linear:
        raise FedmapError(
            f"{whose} has no linear layer; its last layer must be an nn.Linear with one output for "
            "each class"
        )
    name, last = linear[-1]
    if last.out_features != classes:
        raise FedmapError(
            f"{whose}: its last linear layer {name!r} has {last.out_features} outputs, but there "
            f"are {classes} classes"
        )
    training, samples = (
        module.training,
        torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)),
    )
    passed: list[tuple[Tensor, Tensor]] = []  # what went into the layer and what came out
    hook = last.register_forward_hook(
        lambda layer, inputs, output: passed.append((inputs[0], output))
    )
    with torch.no_grad():
        logits = module.eval()(samples)
        hook.remove()
        splits = (
            len(passed) == 1
            and isinstance(logits, Tensor)
            and logits.shape == (4, classes)
            and torch.equal(logits, passed[0][1])
        )
        features: nn.Module = nn.Identity()
        if splits and name:
            module.set_submodule(name, nn.Identity())
            features = module
            splits = torch.equal(features(samples), passed[0][0])
    if not splits:
        raise FedmapError(
            f"{whose}: its output is not what its last linear layer {name!r} gives; register the "
            "classifier last, "
            "call it last, and return its output alone (softmax belongs to the loss)"
        )
    return Adapted(features, last).train(training)
