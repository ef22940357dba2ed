"""A whole model that a client keeps for itself and trains further whenever it takes part. Shared by
Ditto, DittoRS, FedProto and Local."""

from fedmap.values import Values, number
from fedmap.vector import Model


def untrained(model: Model) -> Values:
    """The state of a client whose own model is still the initial one."""
    return {"own": model.vector.clone(), "participations": number(0)}


def trained(model: Model, state: Values) -> Values:
    """The state after one more participation."""
    return {"own": model.vector.clone(), "participations": state["participations"] + 1}


def kept_own(state: Values) -> Values | None:
    """The own model as the client's personal one, once it has been trained."""
    return {"model": state["own"]} if state["participations"] else None
