"""ScaMAP: MAP whose shared stage is Scaffold's. Li et al., MAP: model aggregation and
personalization in federated learning with incomplete classes."""

from pydantic import Field

from fedmap.client import Client
from fedmap.methods.base import Local, register
from fedmap.methods.map import MAP, MAPParams
from fedmap.methods.parts.control import train_controlled
from fedmap.methods.scars import ScaRS, ScaRSParams
from fedmap.values import Values
from fedmap.vector import Model


class ScaMAPParams(MAPParams, ScaRSParams):
    """Those of MAP and of Scaffold, with a longer second stage."""

    stage_two: float = Field(0.2, ge=0, le=2, description="share of the local steps in stage two")
    stage_two_lr: float = Field(
        0.5, gt=0, le=1, description="factor on the learning rate in stage two"
    )


@register
class ScaMAP(ScaRS[ScaMAPParams], MAP[ScaMAPParams]):
    """Scaffold's corrected steps with the restricted softmax for the model that is aggregated, then
    MAP's second stage.

    Stage one is ScaRS's local training and alone gives what is uploaded and the client's variate;
    stage two, with ordinary SGD, and the HPM are MAP's (Eq. 13 and 10). The server half is
    Scaffold's."""

    presets = MAP.presets | {
        "released": {"stage_one": 1.0, "stage_two": 0.2, "stage_two_lr": 0.5},
    }

    def client_state(self, model: Model) -> Values:
        return ScaRS.client_state(self, model) | MAP.client_state(self, model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        first, second = self.stages(client.steps)
        model, loss = client.model(down["model"]), self.local_loss(client, down, state)
        change = train_controlled(client, model, loss, first, down, state)
        uploaded = model.vector.clone()
        kept = {"control": state["control"] + change}
        kept |= self.personalize(client, model, second, state)
        return Local(
            up={"model": uploaded, "control": change},
            state=kept,
            personal=self.personal(client, down, kept),
        )
