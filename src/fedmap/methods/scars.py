"""ScaRS: Scaffold with the restricted softmax. Li et al., MAP: model aggregation and
personalization in federated learning with incomplete classes, where it is a compared method."""

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import Values, register
from fedmap.methods.fedrs import RestrictedParams, restricted
from fedmap.methods.parts.control import ControlParams
from fedmap.methods.scaffold import Scaffold


@register
class ScaRS(Scaffold):
    """Scaffold whose clients hold back the proxies of classes that they do not have.

    Scaffold's steps and variates, on the restricted softmax loss (Eq. 8) instead of the ordinary
    one."""

    class Params(RestrictedParams, ControlParams):
        pass

    groups = [
        {"alpha": 0.1, "server_lr": 0.5},
        {"alpha": 0.9, "server_lr": 0.75},
        {"alpha": 0.5, "server_lr": 0.9},
    ]

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return restricted(client, self.params)
