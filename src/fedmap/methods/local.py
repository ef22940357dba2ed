"""Training alone: what every client has without a federation."""

from collections.abc import Sequence

from torch import Tensor

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods import base
from fedmap.methods.parts.own_model import kept_own, trained, untrained
from fedmap.values import Values
from fedmap.vector import Model


@base.register
class Local(base.Method[base.MethodParams]):
    """Each client trains its own model on its own data alone: what a federation must be better
    than.

    Nothing moves, and there is no global model. A client's model is trained further whenever it
    takes part, for as many steps as in any other method."""

    not_averaged = "its clients upload nothing"

    def client_state(self, model: Model) -> Values:
        return untrained(model)

    def local_round(self, client: Client, down: Values, state: Values) -> base.Local:
        model = client.model(state["own"])
        client.train(model, cross_entropy, client.steps)
        state = trained(model, state)
        return base.Local({}, state, {"model": state["own"]})

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values | None:
        return kept_own(state)

    def downloaded(self, down: Values, state: Values) -> Values | None:
        return {"model": state["own"]}

    def start(self, model: Model) -> Values:
        return {}

    def download(self, state: Values) -> Values:
        return {}

    def aggregate(
        self, server: base.Server, state: Values, uploads: Sequence[base.Upload]
    ) -> Values:
        return {}

    def global_model(self, state: Values) -> Tensor | None:
        return None
