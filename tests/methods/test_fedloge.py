"""FedLoGe: a body that learns from a fixed sparse simplex, and two heads that cannot move it."""

from typing import Any

import pytest
import torch
from tests.methods.conftest import World, present
from torch import Tensor

from fedmap.check import check_method
from fedmap.errors import FedmapError
from fedmap.methods.fedgela import FedGELA
from fedmap.methods.fedloge import FedLoGe
from fedmap.nets import build
from fedmap.values import Values
from fedmap.vector import Model


@pytest.mark.parametrize(("scale", "clip"), [(0.1, None), (2.0, None), (2.0, 0.3)])
def test_two_rounds_agree_with_the_formula(world: World, scale: float, clip: float | None) -> None:
    """The clip holds for the gradient of the model and the private head as one vector."""
    method = FedLoGe(scale=scale)
    history = world.play(method, clip=clip)
    w, fixed = world.initial().vector, method.fixed(world.initial())
    heads = {k: torch.zeros(32) for k in range(3)}
    for round in (1, 2):
        uploads = []
        for k in range(3):

            def loss(both: Tensor, x: Tensor, y: Tensor) -> Tensor:
                h = world.features(both[:88], x)
                h_fixed = world.features(both[:88].detach(), x)
                g, p = both[56:88].view(4, 8), both[88:].view(4, 8)
                odds = [torch.exp(a) for a in (h @ fixed.T, h_fixed @ g.T, h_fixed @ p.T)]
                label = torch.arange(len(y)), y
                return -torch.stack([(o[label] / o.sum(1)).log().mean() for o in odds]).sum()

            start = torch.cat([w, heads[k]])
            both = world.sgd(start, world.batches(k, round), loss, clip=clip)
            ours, head = history[round - 1].up[k]["model"], history[round - 1].states[k]["head"]
            torch.testing.assert_close(ours, both[:88], rtol=0, atol=1e-5)
            torch.testing.assert_close(head.flatten(), both[88:], rtol=0, atol=1e-5)
            heads[k] = both[88:]
            uploads.append(both[:88])
        w = world.mean(uploads)
        torch.testing.assert_close(history[round - 1].server["model"], w, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("sparsity", "seen"), [(0.0, 84), (0.6, 34), (0.9, 10), (0.99, 10)])
def test_the_fixed_head_is_a_simplex_in_the_features_that_it_sees(
    sparsity: float, seen: int
) -> None:
    """At least as many as there are classes."""
    model = Model(build("lenet", (1, 32, 32), 10, 0))
    fixed = FedLoGe(sparsity=sparsity, scale=2.0).fixed(model)
    gram = torch.full((10, 10), -1 / 9).fill_diagonal_(1)
    torch.testing.assert_close(fixed @ fixed.T, 4 * gram, rtol=0, atol=1e-5)
    sees, lengths = fixed.any(0), model.net.classifier.weight.detach().norm(dim=0)
    assert int(sees.sum()) == seen
    assert seen == 84 or lengths[sees].min() > lengths[~sees].max()  # the longest columns


def test_which_features_are_seen_does_not_lean_to_one_sign() -> None:
    """After a ReLU, a row of one sign would be out of reach, or always ahead."""
    nets = [Model(build("lenet", (1, 32, 32), 10, seed)) for seed in range(20)]
    shares = torch.stack([(FedLoGe().fixed(net) > 0).sum(1) / 34 for net in nets])
    assert shares.mean().sub(0.5).abs() < 0.02
    assert shares.mean(0).sub(0.5).abs().max() < 0.08


def test_a_net_with_fewer_features_than_classes_is_refused() -> None:
    with pytest.raises(FedmapError, match=r"9 classes needs .* at least 9 dim.* net's have 8"):
        FedLoGe().fixed(Model(build("tiny", (6,), 9, 0)))


def test_the_body_does_not_depend_on_the_generic_head(world: World) -> None:
    class Other(FedLoGe):
        """With another generic head at the start."""

        def start(self, model: Model) -> Values:
            vector = model.vector.clone()
            vector[56:] = torch.linspace(-3, 3, 32)
            return super().start(model) | {"model": vector}

    for one, other in zip(world.play(FedLoGe()), world.play(Other()), strict=True):
        for k in range(3):
            assert torch.equal(one.up[k]["model"][:56], other.up[k]["model"][:56])
            assert not torch.equal(one.up[k]["model"][56:], other.up[k]["model"][56:])


def test_the_body_does_not_depend_on_the_private_heads(world: World) -> None:
    method = FedLoGe()
    down = method.download(method.start(world.initial()))
    state = method.client_state(world.initial())
    ups = [
        method.local_round(world.client(0, 1), down, state | {"head": head}).up["model"]
        for head in (state["head"], state["head"] + 3)
    ]
    assert torch.equal(*ups)


def test_without_sparsity_bodies_and_global_model_are_those_of_fedgela_without_stretching(
    world: World,
) -> None:
    ours, theirs = FedLoGe(sparsity=0.0, scale=0.3), FedGELA(adapt=False, scale=0.3)
    for one, other in zip(world.play(ours), world.play(theirs), strict=True):
        for k in range(3):
            assert torch.equal(one.up[k]["model"][:56], other.up[k]["model"][:56])
        assert torch.equal(
            present(ours.global_model(one.server)), present(theirs.global_model(other.server))
        )


def test_generic_and_private_head_learn_the_same_loss_on_the_same_features(world: World) -> None:
    """So from the same start they are the same head."""
    method = FedLoGe()
    down = method.download(method.start(world.initial()))
    head = down["model"][56:].view(4, 8).clone()
    local = method.local_round(
        world.client(0, 1), down, method.client_state(world.initial()) | {"head": head}
    )
    torch.testing.assert_close(
        local.up["model"][56:].view(4, 8), local.state["head"], rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("head", ["aligned", "fixed", "plain"])
def test_the_global_model_answers_with_the_chosen_head(world: World, head: Any) -> None:
    method = FedLoGe(head=head)
    states = [method.start(world.initial()), *(after.server for after in world.play(method, 3))]
    for state in states:
        found, g = present(method.global_model(state)), state["model"][56:].view(4, 8)
        aligned = torch.stack([row / row.square().sum().sqrt() for row in g])
        rows = {"aligned": aligned, "fixed": method.fixed(world.initial()), "plain": g}[head]
        assert torch.equal(found[:56], state["model"][:56])
        exact = 1e-6 if head == "aligned" else 0
        torch.testing.assert_close(found[56:].view(4, 8), rows, rtol=0, atol=exact)


def test_the_head_changes_no_training(world: World) -> None:
    plain = world.play(FedLoGe(head="plain"), 3)
    assert all(
        world.same(plain, world.play(FedLoGe(head=head), 3)) for head in ("aligned", "fixed")
    )


def test_a_client_answers_among_its_own_classes_with_stretched_rows(world: World) -> None:
    method = FedLoGe()
    personal = world.play(method)[-1].personal[0]
    x = world.federation.dataset.test_x
    stretched = 1 + personal["head"].square().sum(1).sqrt()
    expected = world.logits(personal["model"], x) * stretched
    found = method.predictor(world.models(), personal)(x)
    torch.testing.assert_close(found[:, :2], expected[:, :2], rtol=0, atol=1e-5)
    assert found[:, 2:].isneginf().all()  # client 0 has the classes 0 and 1


def test_without_a_private_head_and_with_all_classes_a_client_has_the_plain_model(
    world: World,
) -> None:
    method, vector = FedLoGe(), world.initial().vector.clone()
    personal = {"model": vector, "head": torch.zeros(4, 8), "own": torch.ones(4).bool()}
    x = world.federation.dataset.test_x
    found = method.predictor(world.models(), personal)(x)
    assert torch.equal(found, world.initial()(x))


def test_private_heads_and_the_fixed_one_stay(world: World) -> None:
    (only,) = world.play(FedLoGe(), 1)
    assert only.up[0].keys() == FedLoGe().download(only.server).keys() == {"model"}
    assert only.states[0]["head"].any()
    record = world.record("fedloge")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"sparsity": 1}, {"scale": 0}, {"head": "both"}])
def test_a_parameter_outside_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedLoGe(**wrong)


@pytest.mark.parametrize("head", ["aligned", "plain"])
def test_it_passes_the_battery_with_its_other_heads_too(head: str) -> None:
    check_method("fedloge", head=head)
