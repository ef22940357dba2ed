"""FedProx. Li et al., Federated optimization in heterogeneous networks, MLSys 2020."""

from pydantic import Field

from fedmap.client import Client
from fedmap.losses import cross_entropy
from fedmap.methods.base import Local, Method, MethodParams, register
from fedmap.methods.parts.proximal import pull_towards
from fedmap.values import Values


class FedProxParams(MethodParams):
    """Parameters of FedProx."""

    mu: float = Field(
        0.01, ge=0, description="strength of the pull towards the download; 0 is FedAvg"
    )


@register
class FedProx(Method[FedProxParams]):
    """FedAvg whose clients are held near the downloaded model while they train.

    Local training minimizes L_k(w) + mu / 2 ||w - w_t||^2, so each gradient gains mu (w - w_t)."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        start = down["model"]
        model = client.model(start)
        client.train(
            model, cross_entropy, client.steps, correct=pull_towards(start, self.params.mu)
        )
        trained = model.vector.clone()
        return Local(up={"model": trained}, state=state, personal={"model": trained})
