"""Training in one place: what could be reached if samples could be pooled."""

from fedmap.client import Client
from fedmap.methods.base import Method, MethodParams, register
from fedmap.values import Values


@register
class Central(Method[MethodParams]):
    """All samples in one place, the upper bound to compare with: it breaks the federation's rule
    that samples stay with their owners.

    One model is trained on everybody's training samples, for as many samples a round as the clients
    of a round would see. Each client's personal model is this one model."""

    pooled = True
    not_averaged = "all samples are in one place, and nothing is averaged"

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values | None:
        return {"model": down["model"]}
