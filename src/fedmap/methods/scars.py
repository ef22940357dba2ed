"""ScaRS: Scaffold with the restricted softmax. Li et al., MAP: model aggregation and
personalization in federated learning with incomplete classes, where it is a compared method."""

from typing import TypeVar

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import register
from fedmap.methods.parts.control import ControlParams
from fedmap.methods.parts.restricted import RestrictedParams, restricted
from fedmap.methods.scaffold import Scaffold
from fedmap.values import Values


class ScaRSParams(RestrictedParams, ControlParams):
    """Those of the restricted softmax and of Scaffold."""


S = TypeVar("S", bound=ScaRSParams)


@register
class ScaRS(Scaffold[S]):
    """Scaffold whose clients hold back the proxies of classes that they do not have.

    Scaffold's steps and variates, on the restricted softmax loss (Eq. 8) instead of the ordinary
    one."""

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return restricted(client, self.params)
