"""FedNH: prototypes that the server moves are the classifier, and clients train the body alone."""

from typing import Any

import pytest
import torch
from tests.methods.conftest import World
from tests.methods.differences import assert_method_gradient, client_of
from torch import Tensor, nn

from fedmap.errors import FedmapError
from fedmap.methods import Upload
from fedmap.methods.fednh import FedNH
from fedmap.methods.parts.body import orthonormal_rows
from fedmap.nets import adapt
from fedmap.vector import Model


def rows(vector: Tensor) -> Tensor:
    """The classifier of the tiny net."""
    return vector[56:88].view(4, 8)


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize(("rho", "scale"), [(0.9, 10.0), (0.5, 3.0)])
def test_two_rounds_agree_with_the_formula(world: World, rho: float, scale: float) -> None:
    method = FedNH(rho=rho, scale=scale)
    history = world.play(method)
    w = method.start(world.initial())["model"]
    for round in (1, 2):
        prototypes, bodies = rows(w), []
        directions: list[Tensor] = [torch.zeros(8) for _ in range(4)]
        for k in range(3):

            def loss(body: Tensor, x: Tensor, y: Tensor, prototypes: Tensor = prototypes) -> Tensor:
                logits = scale * unit(world.features(body, x)) @ prototypes.T
                return -torch.log_softmax(logits, 1)[torch.arange(len(y)), y].mean()

            bodies.append(world.sgd(w[:56], world.batches(k, round), loss))
            x, y = world.client(k, round).train_data
            for c in y.unique().tolist():
                u = unit(world.features(bodies[-1], x[y == c]))
                sent = int((y == c).sum()) * unit(u.mean(0))
                ours = history[round - 1].up[k]["prototypes"][c]
                torch.testing.assert_close(ours, sent, rtol=0, atol=1e-4)
                directions[c] = directions[c] + sent
        moved = unit(rho * prototypes + (1 - rho) * unit(torch.stack(directions)))
        w = torch.cat([world.mean(bodies), moved.flatten()])
        torch.testing.assert_close(history[round - 1].server["model"], w, rtol=0, atol=1e-5)


def test_the_gradient_is_that_of_the_loss() -> None:
    assert_method_gradient(FedNH(), [0, 0, 0, 2, 2, 3])


def test_prototypes_start_orthonormal(world: World) -> None:
    start = rows(FedNH().start(world.initial())["model"])
    torch.testing.assert_close(start @ start.T, torch.eye(4), rtol=0, atol=1e-6)


def test_more_classes_than_dimensions_start_with_rows_of_length_one_all_the_same() -> None:
    drawn = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    start = orthonormal_rows(drawn)
    assert torch.allclose(start.norm(dim=1), torch.ones(9))
    assert (start @ start.T - torch.eye(9)).max() < 0.999  # no two are the same


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_clients_train_the_body_alone(world: World, net: str) -> None:
    method, part = FedNH(), world.initial(net).classifier_part
    down = method.start(world.initial(net))["model"]
    (only,) = world.play(method, 1, net=net)
    assert all(torch.equal(only.up[k]["model"][part], down[part]) for k in range(3))
    assert not torch.equal(only.up[0]["model"][: part.start], down[: part.start])


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_prototypes_that_stay_wholly_keep_their_bits(world: World, net: str) -> None:
    method, part = FedNH(rho=1), world.initial(net).classifier_part
    start = method.start(world.initial(net))["model"]
    assert torch.equal(world.play(method, net=net)[-1].server["model"][part], start[part])


@pytest.mark.parametrize("rho", [0.9, 0.0])
def test_a_class_that_nobody_of_the_round_has_keeps_its_bits(world: World, rho: float) -> None:
    # client 2 alone has class 3
    first, second = world.play(FedNH(rho=rho), selected=[[0, 1, 2], [0, 1]])
    before, after = rows(first.server["model"]), rows(second.server["model"])
    assert (before == after).all(1).tolist() == [False, False, False, True]
    assert torch.allclose(after.norm(dim=1), torch.ones(4), atol=1e-6)


def test_without_memory_a_prototype_is_the_direction_that_its_only_client_sent(
    world: World,
) -> None:
    (only,) = world.play(FedNH(rho=0), 1, selected=[[1]])
    sent = only.up[1]["prototypes"][1:3]  # its classes
    cosines = (rows(only.server["model"])[1:3] * unit(sent)).sum(1)
    assert torch.allclose(cosines, torch.ones(2), atol=1e-6)


def test_clients_weigh_by_their_samples_of_the_class(world: World) -> None:
    method = FedNH(rho=0)
    start = method.start(world.initial())
    up = [start | {"prototypes": torch.zeros(4, 8)} for _ in range(2)]
    up[0]["prototypes"][1, 0], up[1]["prototypes"][1, 1] = 3.0, 4.0
    uploads = [Upload(k, weight, up[k]) for k, weight in enumerate((0.9, 0.1))]
    found = rows(method.aggregate(world.setup(method).server(1), start, uploads)["model"])
    assert torch.allclose(found[1], torch.tensor([0.6, 0.8, 0, 0, 0, 0, 0, 0]))


def test_the_ordinary_net_answers_as_the_cosines_do(world: World) -> None:
    vector = world.play(FedNH())[-1].server["model"]
    x, _ = world.client(0, 1).test_data
    cosines = unit(world.features(vector, x)) @ rows(vector).T
    assert torch.equal(world.models().model(vector)(x).argmax(1), cosines.argmax(1))


def test_what_goes_up_tells_the_class_counts_and_the_method_says_so(world: World) -> None:
    (only,) = world.play(FedNH(), 1)
    lengths = only.up[0]["prototypes"].norm(dim=1)
    assert torch.allclose(lengths, world.client(0, 1).counts.float(), atol=1e-4)
    assert only.up[0].keys() == {"model", "prototypes"}
    assert "how many" in FedNH.sends["prototypes"]


def test_a_bias_of_the_classifier_is_zero() -> None:
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    model = Model(adapt(net, (6,), 4))
    named = model.named(FedNH().start(model)["model"])
    assert not named["classifier.bias"].any()
    assert torch.allclose(named["classifier.weight"].norm(dim=1), torch.ones(4), atol=1e-6)


def test_a_client_with_one_sample_takes_part() -> None:
    client, method = client_of([2]), FedNH()
    down = method.start(client.model(torch.zeros(88)))
    up = method.local_round(client, down, {}).up
    assert torch.isfinite(up["prototypes"]).all()


@pytest.mark.parametrize("wrong", [{"rho": 1.1}, {"rho": -0.1}, {"scale": 0}])
def test_a_parameter_outside_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedNH(**wrong)
