"""The proximal pull: training that is held near an anchor. Shared by FedProx and Ditto."""

from collections.abc import Callable

from torch import Tensor

from fedmap.vector import Model


def pull_towards(anchor: Tensor, strength: float) -> Callable[[Model], None]:
    """The gradient of strength / 2 * ||w - anchor||^2 over the weights, for `correct=` of
    `client.train`.

    Statistics of batch norm have no gradient and are not pulled, so `anchor` may be a whole model's
    vector or its weights."""

    def correct(model: Model) -> None:
        model.grads.add_(model.weights.detach() - anchor[: model.weight_count], alpha=strength)

    return correct
