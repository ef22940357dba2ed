"""FedRS. Li and Zhan, FedRS: federated learning with restricted softmax for label distribution
non-iid data, KDD 2021."""

from pydantic import Field

from fedmap.client import Client
from fedmap.losses import Loss, RestrictedMode, class_scale, restricted_softmax
from fedmap.methods.base import Method, MethodParams, Values, register


class RestrictedParams(MethodParams):
    """Parameters of the restricted softmax (Eq. 8)."""

    alpha: float = Field(
        0.9,
        ge=0,
        le=1,
        description="factor on the logits of missing classes; 1 is the ordinary softmax",
    )
    mode: RestrictedMode = Field(
        "binary", description="how the factors follow from the class counts"
    )


def restricted(client: Client, params: RestrictedParams) -> Loss:
    """The restricted softmax loss for what this client observes."""
    return restricted_softmax(
        class_scale(client.counts, client.observed, params.alpha, params.mode)
    )


@register
class FedRS(Method):
    """FedAvg whose clients hold back the proxies of classes that they do not have.

    A missing class's proxy is only ever pushed away from the features seen; scaling its logit by
    alpha scales that push (Eq. 9)."""

    Params = RestrictedParams
    groups = [{"alpha": 0.9}, {"alpha": 0.5}, {"alpha": 0.1}]

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return restricted(client, self.params)
