"""Ditto. Li, Hu, Beirami and Smith, Ditto: fair and robust federated learning through
personalization, ICML 2021."""

from typing import TypeVar

from pydantic import Field

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods.base import Local, Method, MethodParams, register
from fedmap.methods.parts.own_model import kept_own, trained, untrained
from fedmap.methods.parts.proximal import pull_towards
from fedmap.values import Values
from fedmap.vector import Model


class DittoParams(MethodParams):
    """Parameters of the personal branch."""

    weight: float = Field(
        0.1,
        ge=0,
        description="lambda, the pull of the personal model to the global one; 0 trains it alone",
    )


D = TypeVar("D", bound=DittoParams)


@register
class Ditto(Method[D]):
    """FedAvg beside a personal model that each client keeps and trains near the global one.

    The branch that is uploaded is FedAvg's own. The personal model v_k minimizes
    L(v) + lambda / 2 ||v - w_t||^2 for as many steps again, where w_t is the downloaded model
    (Algorithm 1)."""

    def client_state(self, model: Model) -> Values:
        return untrained(model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        up = super().local_round(client, down, state).up
        model = client.model(state["own"])
        pull = pull_towards(down["model"], self.params.weight)
        client.train(model, cross_entropy, client.steps, correct=pull)
        state = trained(model, state)
        return Local(up, state, {"model": state["own"]})

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values | None:
        return kept_own(state)
