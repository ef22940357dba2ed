"""A method of fedmap's whose clients train nothing: what is left is the price of a client call."""

from fedmap import Method
from fedmap.client import Client
from fedmap.methods import Local, MethodParams
from fedmap.values import Values


class Nothing(Method[MethodParams]):
    """Clients send back what they got."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        return Local(up={"model": down["model"]}, state=state, personal={"model": down["model"]})
