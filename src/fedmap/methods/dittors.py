"""DittoRS: Ditto (Li et al., ICML 2021) with the restricted softmax of FedRS (Li and Zhan, KDD
2021), as the MAP paper combines them."""

from fedmap.client import Client
from fedmap.losses import Loss
from fedmap.methods.base import Values, register
from fedmap.methods.ditto import Ditto, DittoParams
from fedmap.methods.fedrs import RestrictedParams, restricted


@register
class DittoRS(Ditto):
    """Ditto whose aggregated branch trains with the restricted softmax.

    The uploaded branch minimizes the restricted softmax loss (Eq. 8); the personal branch is
    Ditto's, with the ordinary softmax."""

    class Params(RestrictedParams, DittoParams):
        """Those of the restricted softmax and of the personal branch."""

    groups = [
        {"alpha": 0.1, "weight": 0.1},
        {"alpha": 0.9, "weight": 0.01},
        {"alpha": 0.5, "weight": 0.001},
    ]

    def local_loss(self, client: Client, down: Values, state: Values) -> Loss:
        return restricted(client, self.params)
