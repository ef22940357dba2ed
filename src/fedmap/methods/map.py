"""MAP. Li et al., MAP: model aggregation and personalization in federated learning with incomplete
classes (Algorithm 1)."""

from typing import TypeVar

from pydantic import Field

from fedmap.client import MIN_STEPS, Client
from fedmap.methods.base import Local, Method, Predictor, register
from fedmap.methods.parts.hpm import HPMParams, inherit, no_hpm, supervised
from fedmap.methods.parts.own_classes import OwnAnswers, own_classes
from fedmap.methods.parts.restricted import RestrictedParams, restricted
from fedmap.values import Values
from fedmap.vector import Model, WorkingModels


class MAPParams(RestrictedParams, HPMParams):
    """Those of the restricted softmax, of the HPM, the schedule of the two stages, and how a client
    answers.

    The released schedule is the default: docs/map-default.md has the study that speaks for it."""

    stage_one: float = Field(1.0, ge=0, le=2, description="share of the local steps in stage one")
    stage_two: float = Field(0.1, ge=0, le=2, description="share of the local steps in stage two")
    stage_two_lr: float = Field(
        0.2, gt=0, le=1, description="factor on the learning rate in stage two"
    )
    own: bool = Field(
        False, description="does a client answer among its own classes only? the paper: no"
    )
    opinion: float = Field(
        0.0, ge=0, le=1, description="share of the download in a client's answer; the paper: 0"
    )


Q = TypeVar("Q", bound=MAPParams)


@register
class MAP(Method[Q]):
    """Restricted softmax for the model that is aggregated, then an inherited private model for the
    client's own.

    Stage one trains the download with the restricted softmax (Eq. 8); its result alone is uploaded.
    Stage two goes on with the ordinary softmax, taught by the HPM (Eq. 13); its result is inherited
    by the HPM (Eq. 10), the personal model.

    The preset `own` is not the paper's: missing classes are out of stage one's softmax, and a
    client answers among its own classes, asking the HPM and the download together."""

    presets = {
        "printed": {"stage_one": 0.5, "stage_two": 0.5, "stage_two_lr": 1.0},  # Algorithm 1
        "released": {"stage_one": 1.0, "stage_two": 0.1, "stage_two_lr": 0.2},  # the authors' code
        "own": {"mode": "removed", "own": True, "opinion": 0.5},  # for use: docs/methods/map.md
    }

    def client_state(self, model: Model) -> Values:
        return no_hpm(model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        first, second = self.stages(client.steps)
        model = client.model(down["model"])
        client.train(model, restricted(client, self.params), first)
        uploaded = model.vector.clone()
        state = self.personalize(client, model, second, state)
        return Local({"model": uploaded}, state, self.personal(client, down, state))

    def stages(self, steps: int) -> tuple[int, int]:
        """The two stages' steps. Where the shares sum to one nothing is lost to rounding; a stage
        two has at least five."""
        one, two = self.params.stage_one, self.params.stage_two
        first = int(one * steps + 1e-9)
        return first, max(int((one + two) * steps + 1e-9) - first, MIN_STEPS) if two else 0

    def personalize(self, client: Client, model: Model, steps: int, state: Values) -> Values:
        """Stage two from the model that stage one left, and the HPM that inherits its result."""
        loss = supervised(client, state, self.params)
        client.train(model, loss, steps, lr_factor=self.params.stage_two_lr)
        return inherit(client, state, model, self.params)

    def personal(self, client: Client, down: Values, state: Values) -> Values:
        """The HPM, with what else a client's answer depends on."""
        personal = {"model": state["hpm"]}
        if self.params.own:
            personal["own"] = own_classes(client)
        if self.params.opinion:
            personal["download"] = down["model"]
        return personal

    def kept_personal(self, client: Client, down: Values, state: Values) -> Values | None:
        return self.personal(client, down, state) if state["participations"] else None

    def predictor(self, models: WorkingModels, personal: Values) -> Predictor:
        net = models.model(personal["model"]).net
        own, download = personal.get("own"), personal.get("download")
        if own is None and download is None:
            return net
        second = None if download is None else models.model(download).net
        return OwnAnswers(net, own, second, self.params.opinion)
