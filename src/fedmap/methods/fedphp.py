"""FedPHP. Li et al., FedPHP: federated personalization with inherited private models, ECML PKDD
2021."""

from fedmap.client import Client
from fedmap.methods.base import Local, Method, register
from fedmap.methods.parts.hpm import HPMParams, inherit, kept_hpm, no_hpm, supervised
from fedmap.values import Values
from fedmap.vector import Model


@register
class FedPHP(Method[HPMParams]):
    """FedAvg whose clients keep a moving average of their own models (HPM) and learn from it.

    One stage: all local steps minimize (1 - lambda) L + lambda L_kt (Eq. 13), the result is
    uploaded and inherited (Eq. 10)."""

    def client_state(self, model: Model) -> Values:
        return no_hpm(model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        model = client.model(down["model"])
        client.train(model, supervised(client, state, self.params), client.steps)
        uploaded = model.vector.clone()
        state = inherit(client, state, model, self.params)
        return Local(up={"model": uploaded}, state=state, personal={"model": state["hpm"]})

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values | None:
        return kept_hpm(state)
