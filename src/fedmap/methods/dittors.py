"""DittoRS: Ditto (Li et al., ICML 2021) with the restricted softmax of FedRS (Li and Zhan, KDD
2021), as the MAP paper combines them."""

from pydantic import Field

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import register
from fedmap.methods.ditto import Ditto, DittoParams
from fedmap.methods.parts.restricted import RestrictedParams, restricted
from fedmap.values import Values


class DittoRSParams(RestrictedParams, DittoParams):
    """Those of the restricted softmax and of the personal branch."""

    alpha: float = Field(
        0.1,  # not FedRS's 0.9: docs/defaults.md
        ge=0,
        le=1,
        description="factor on the logits of missing classes; 1 is the ordinary softmax",
    )


@register
class DittoRS(Ditto[DittoRSParams]):
    """Ditto whose aggregated branch trains with the restricted softmax.

    The uploaded branch minimizes the restricted softmax loss (Eq. 8); the personal branch is
    Ditto's, with the ordinary softmax."""

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return restricted(client, self.params)
