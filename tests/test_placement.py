"""Every method's halves on a device that is not the CPU, without having one: on `meta`, under
torch's fake tensors, an operation on tensors of two devices raises as it would on a GPU. Values are
made up there, so where a value is asked for a shim answers."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fedmap import client, devices
from fedmap.client import Client
from fedmap.federation import Federation
from fedmap.methods import METHODS, AnyMethod, Local, Server, Upload
from fedmap.methods.fedavg import FedAvg
from fedmap.simulate import Settings
from fedmap.simulate.round import aggregated, uploads
from fedmap.simulate.tasks import Setup, do
from fedmap.values import Values

ALL = sorted(METHODS)
FEW_STEPS: dict[str, dict[str, Any]] = {
    "feddf": {"distill_steps": 2},
    "fedaws": {"spread_steps": 2},
    "pfedme": {"inner_steps": 1},
}
OTHER_PARAMS: list[tuple[str, dict[str, Any]]] = [
    ("feddecorr", {"preset": "fedmr"}),
    ("fedgela", {"loss": "etf"}),
    ("fedlesam", {"direction": "local"}),
    ("fedloge", {"head": "aligned"}),
    ("fedntd", {"preset": "fedlmd"}),
    ("fedvls", {"preset": "printed"}),
    ("knnper", {"mix": 0.5}),
    ("map", {"preset": "own"}),
    ("map", {"transfer": "mmd"}),
    ("fedopt", {"optimizer": "yogi"}),
]
aten = torch.ops.aten


class Fake(FakeTensorMode):
    """Fake tensors whose values can be asked for: a number is one, unless it is known, and of a
    condition all places hold."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given: Any = args[0] if args else None
        device = given.device if isinstance(given, Tensor) else None
        if func is aten._local_scalar_dense.default and getattr(given, "constant", None) is None:
            return 1.0 if given.is_floating_point() else 1
        if func is aten.nonzero.default:
            return torch.empty(len(given), given.dim(), dtype=torch.int64, device=device)
        if func is aten.bincount.default:
            return torch.empty(args[2], dtype=torch.int64, device=device)
        if func is aten.index.Tensor and args[1][0].dtype == torch.bool:
            return given.clone()
        # torch lets this one pass on `meta`, and on no other device
        other = args[1] if func is aten.add_.Tensor else None
        if isinstance(other, Tensor) and other.dim() and other.device != device:
            raise RuntimeError("add_ found at least two devices")
        return super().__torch_dispatch__(func, types, args, kwargs)


def to(net: nn.Module, device: torch.device) -> nn.Module:
    """`nn.Module.to`, which cannot do it with fake parameters."""
    for module in net.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                moved = parameter.detach().to(device)
                module._parameters[name] = nn.Parameter(moved, parameter.requires_grad)
        for name, buffer in module._buffers.items():
            module._buffers[name] = None if buffer is None else buffer.to(device)
    return net


@pytest.fixture
def on_meta(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[AnyMethod], Setup]]:
    """A set-up whose device is `meta`, while all tensors are fake."""
    monkeypatch.setattr(devices, "require", lambda name: None)
    monkeypatch.setattr(nn.Module, "to", to)
    monkeypatch.setattr(client, "MIN_STEPS", 2)
    settings = {"net": "tiny-bn", "epochs": 0.1, "device": "meta", "kernels": "torch"}
    own = deepcopy(federation)  # it keeps what it has worked out, which is fake here

    def setup(method: AnyMethod) -> Setup:
        wanted = Settings.model_validate(settings | method.wants)
        return Setup(wanted, own, method)

    with Fake(allow_non_fake_inputs=True):
        yield setup


def play(setup: Setup) -> Values:
    """Two rounds of one client, so that it has a state of its own in the second, then all that
    comes after the last round."""
    method = setup.method
    state, server = method.client_state(setup.initial), method.start(setup.initial)
    for round in (1, 2):
        reply = do(setup, "train", round, 0, method.download(server), state)
        state = reply.state
        server = aggregated(setup, round, server, uploads(setup, [reply]))
    model = method.global_model(server)
    if model is not None:
        do(setup, "evaluate", 2, 0, {"model": model}, {})
    last = do(setup, "personal", 3, 0, method.download(server), state)
    return server | dict(reply.up) | state | last.result


@pytest.mark.parametrize(
    ("name", "params"), [(name, FEW_STEPS.get(name, {})) for name in ALL] + OTHER_PARAMS
)
def test_both_halves_of_a_method_stay_on_the_device_and_leave_tensors_of_the_cpu(
    on_meta: Callable[[AnyMethod], Setup], name: str, params: dict[str, Any]
) -> None:
    left = play(on_meta(METHODS[name](**params)))
    assert {value.device.type for value in left.values()} == {"cpu"}


@pytest.mark.parametrize("name", ALL)
def test_what_a_method_starts_from_is_where_the_model_is(
    on_meta: Callable[[AnyMethod], Setup], name: str
) -> None:
    setup = on_meta(METHODS[name]())
    model = setup.models.model(setup.initial.vector)
    values = setup.method.start(model) | setup.method.client_state(model)
    # a plain number is on the CPU wherever the rest is
    assert {v.device.type for v in values.values() if v.dim()} == {"meta"}


class WrongLoss(FedAvg):
    """Shifts logits by zeros that somebody forgot to place."""

    def local_loss(self, client: Client, down: Values, state: Values) -> Any:
        shift = torch.zeros(4)
        return lambda model, x, y: nn.functional.cross_entropy(model(x) + shift, y)


class WrongUpload(FedAvg):
    """Adds zeros of the CPU to what it uploads."""

    def local_round(self, client: Client, down: Values, state: Values) -> Local:
        local = super().local_round(client, down, state)
        return local._replace(up={"model": local.up["model"] + torch.zeros(len(down["model"]))})


class WrongAggregate(FedAvg):
    """Sums up on the CPU."""

    def aggregate(self, server: Server, state: Values, uploads: Sequence[Upload]) -> Values:
        total = torch.zeros(len(state["model"]))
        for upload in uploads:
            total += upload.up["model"]
        return {"model": total}


@pytest.mark.parametrize("wrong", [WrongLoss, WrongUpload, WrongAggregate])
def test_a_tensor_that_was_left_on_the_cpu_is_noticed(
    on_meta: Callable[[AnyMethod], Setup], wrong: type[AnyMethod]
) -> None:
    with pytest.raises(RuntimeError, match="at least two devices"):
        play(on_meta(wrong()))
