"""ScaMAP: MAP whose shared stage is Scaffold's. Li et al., MAP: model aggregation and
personalization in federated learning with incomplete classes."""

from pydantic import Field

from fedmap.client import Client
from fedmap.methods.base import Local, Values, register, tensor
from fedmap.methods.map import MAP
from fedmap.methods.parts.control import ControlParams, train_controlled
from fedmap.methods.scars import ScaRS
from fedmap.vector import Model


@register
class ScaMAP(ScaRS, MAP):
    """Scaffold's corrected steps with the restricted softmax for the model that is aggregated, then
    MAP's second stage.

    Stage one is ScaRS's local training and alone gives what is uploaded and the client's variate;
    stage two, with ordinary SGD, and the HPM are MAP's (Eq. 13 and 10). The server half is
    Scaffold's."""

    class Params(MAP.Params, ControlParams):
        stage_two: float = Field(
            0.2, ge=0, le=2, description="share of the local steps in stage two"
        )
        stage_two_lr: float = Field(
            0.5, gt=0, le=1, description="factor on the learning rate in stage two"
        )

    presets = MAP.presets | {"released": {"stage_one": 1.0, "stage_two": 0.2, "stage_two_lr": 0.5}}
    groups = [
        {"transfer": "kd", "weight": 0.1, "alpha": 0.5, "server_lr": 0.5},
        {"transfer": "kd", "weight": 0.01, "alpha": 0.9, "server_lr": 0.9},
        {"transfer": "mmd", "weight": 0.01, "alpha": 0.5, "server_lr": 0.5},
    ]

    def client_state(self, model: Model) -> Values:
        return ScaRS.client_state(self, model) | MAP.client_state(self, model)

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        first, second = self.stages(client.steps)
        model = client.model(tensor(down, "model"))
        change = train_controlled(
            client, model, self.local_loss(client, down, state), first, down, state, self.params
        )
        uploaded = model.vector.clone()
        kept = {"control": tensor(state, "control") + change} | self.personalize(
            client, model, second, state
        )
        return Local(
            up={"model": uploaded, "control": change}, state=kept, personal={"model": kept["hpm"]}
        )
