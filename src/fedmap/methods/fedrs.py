"""FedRS. Li and Zhan, FedRS: federated learning with restricted softmax for label distribution
non-iid data, KDD 2021."""

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import Method, register
from fedmap.methods.parts.restricted import RestrictedParams, restricted
from fedmap.values import Values


@register
class FedRS(Method[RestrictedParams]):
    """FedAvg whose clients hold back the proxies of classes that they do not have.

    A missing class's proxy is only ever pushed away from the features seen; scaling its logit by
    alpha scales that push (Eq. 9)."""

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return restricted(client, self.params)
