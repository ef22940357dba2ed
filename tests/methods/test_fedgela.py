"""FedGELA: a simplex that nobody moves, rows stretched by class shares, and FedETF's loss."""

from typing import Any

import pytest
import torch
from tests.methods.conftest import World
from tests.methods.differences import assert_method_gradient, client_of
from torch import Tensor

from fedmap.check import check_method
from fedmap.client import Client
from fedmap.errors import FedmapError
from fedmap.losses import cross_entropy
from fedmap.methods import Local, Method
from fedmap.methods.fedgela import FedGELA
from fedmap.methods.parts.body import simplex
from fedmap.values import Values

BOTH: list[dict[str, Any]] = [{"loss": "gela"}, {"loss": "etf"}]


def drawn(classes: int, dimensions: int) -> Tensor:
    return torch.randn(classes, dimensions, generator=torch.Generator().manual_seed(0))


def formula(
    world: World, rows: Tensor, n: Tensor, loss: str, scale: float, beta: float, adapt: bool
) -> Any:
    """A client's loss over the body, in odds, with loops over nothing but classes."""

    def value(body: Tensor, x: Tensor, y: Tensor) -> Tensor:
        h = world.features(body, x)
        if loss == "gela":
            phi = 4 * n / n.sum() if adapt else torch.ones(4)
            odds = torch.exp(torch.stack([phi[c] * (h @ rows[c]) for c in range(4)], 1))
        else:
            u = h / h.norm(dim=1, keepdim=True)
            cosines = [u @ rows[c] / scale for c in range(4)]
            odds = torch.stack([n[c] * torch.exp(beta * cosines[c]) for c in range(4)], 1)
        return -(odds[torch.arange(len(y)), y] / odds.sum(1)).log().mean()

    return value


@pytest.mark.parametrize(
    "params",
    [{"scale": 2.0}, {"adapt": False}, {"loss": "etf", "scale": 2.0, "temperature_factor": 4.0}],
)
def test_two_rounds_agree_with_the_formula(world: World, params: dict[str, Any]) -> None:
    method = FedGELA(**params)
    history, chosen = world.play(method), method.params
    w = method.start(world.initial())["model"]
    for round in (1, 2):
        bodies = []
        for k in range(3):
            n = world.federation.counts[k].float()
            told = (chosen.loss, chosen.scale, chosen.temperature_factor, chosen.adapt)
            loss = formula(world, w[56:].view(4, 8), n, *told)
            bodies.append(world.sgd(w[:56], world.batches(k, round), loss))
            ours = history[round - 1].up[k]["model"][:56]
            torch.testing.assert_close(ours, bodies[-1], rtol=0, atol=1e-5)
        w = torch.cat([world.mean(bodies), w[56:]])
        torch.testing.assert_close(history[round - 1].server["model"], w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("params", BOTH)
def test_the_gradient_is_that_of_the_loss(params: dict[str, Any]) -> None:
    assert_method_gradient(FedGELA(**params), [0, 0, 0, 2, 2, 3])


@pytest.mark.parametrize(("classes", "dimensions"), [(4, 8), (10, 84), (8, 8), (2, 3)])
def test_the_simplex_has_rows_of_length_one_that_are_equally_far_apart(
    classes: int, dimensions: int
) -> None:
    rows = simplex(drawn(classes, dimensions))
    gram = torch.full((classes, classes), -1 / (classes - 1)).fill_diagonal_(1)
    torch.testing.assert_close(rows @ rows.T, gram, rtol=0, atol=1e-6)
    assert rows.sum(0).abs().max() < 1e-6


def test_more_classes_than_dimensions_are_refused() -> None:
    with pytest.raises(FedmapError, match=r"9 classes needs .* at least 9 dim.* net's have 8"):
        simplex(drawn(9, 8))


def test_one_class_is_a_row_of_length_one() -> None:
    assert float(simplex(drawn(1, 3)).norm()) == pytest.approx(1)


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("params", BOTH)
def test_the_simplex_keeps_its_bits_everywhere(
    world: World, net: str, params: dict[str, Any]
) -> None:
    method, part = FedGELA(scale=0.3, **params), world.initial(net).classifier_part
    rows = method.start(world.initial(net))["model"][part]
    expected = 0.3 * simplex(world.initial(net).net.classifier.weight)
    assert torch.equal(rows, expected.flatten())
    for after in world.play(method, 3, net=net):
        vectors = [after.server["model"]]
        vectors += [values[k]["model"] for values in (after.up, after.personal) for k in range(3)]
        assert all(torch.equal(vector[part], rows) for vector in vectors)


def test_without_stretching_it_is_fedavg_under_a_fixed_simplex_to_the_bit(world: World) -> None:
    class Fixed(Method):
        """FedAvg that starts from a simplex and moves the body alone."""

        def start(self, model: Any) -> Values:
            vector = model.vector.clone()
            vector[56:] = simplex(model.net.classifier.weight).flatten()
            return {"model": vector}

        def local_round(self, client: Client, down: Values, state: Values) -> Local:
            model = client.model(down["model"])
            client.train(model, cross_entropy, client.steps, part=slice(0, 56))
            return Local({"model": model.vector.clone()}, {}, {"model": model.vector.clone()})

    ours, other = world.play(FedGELA(adapt=False)), world.play(Fixed())
    for k in range(3):
        assert torch.equal(ours[0].up[k]["model"], other[0].up[k]["model"])


def test_for_a_client_with_balanced_and_complete_classes_shares_change_nothing() -> None:
    labels = [0, 1, 2, 3] * 3
    found = []
    for adapt in (True, False):
        client, method = client_of(labels), FedGELA(adapt=adapt)
        down = method.start(client.model(torch.linspace(-1, 1, 88)))
        personal = method.local_round(client, down, {}).personal
        predict = method.predictor(client_models(client), personal)
        found.append((personal["model"], predict(client.train_data[0])))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("classes", [41, 47, 55, 97, 100])
def test_the_factor_of_balanced_and_complete_classes_is_one_to_the_bit(classes: int) -> None:
    class Balanced:
        counts, samples = torch.full((classes,), 7), 7 * classes

    balanced: Any = Balanced()
    factors = FedGELA().curation(balanced)["factors"]
    assert torch.equal(factors, torch.ones(classes))


def client_models(client: Client) -> Any:
    """What a predictor takes its models from."""

    class Models:
        model = staticmethod(client.model)

    return Models


@pytest.mark.parametrize("params", BOTH)
def test_rows_of_missing_classes_do_not_matter_to_training(params: dict[str, Any]) -> None:
    client, method = client_of([0, 0, 0, 2, 2]), FedGELA(**params)
    down = method.start(client.model(torch.linspace(-1, 1, 88)))
    other = down["model"].clone()
    other[56:].view(4, 8)[[1, 3]] = 5.0
    one, two = (
        method.local_round(client_of([0, 0, 0, 2, 2]), {"model": vector}, {}).up["model"][:56]
        for vector in (down["model"], other)
    )
    assert torch.equal(one, two)


def test_a_client_answers_with_stretched_logits_and_the_global_model_with_plain_ones(
    world: World,
) -> None:
    method = FedGELA()
    (only,) = world.play(method, 1)
    x, _ = world.client(0, 1).test_data
    n = world.federation.counts[0]
    logits = world.logits(only.personal[0]["model"], x)
    found = method.predictor(world.models(), only.personal[0])(x)
    torch.testing.assert_close(found, logits * 4 * n / n.sum(), rtol=0, atol=1e-5)
    assert not found[:, 2:].any()  # missing
    down = method.download(only.server)
    before = method.downloaded(down, {})
    assert before is not None
    plain = method.predictor(world.models(), before)(x)
    torch.testing.assert_close(plain, world.logits(down["model"], x), rtol=0, atol=1e-5)


def test_with_the_loss_of_fedetf_no_client_answers_with_a_missing_class(world: World) -> None:
    method = FedGELA(loss="etf")
    (only,) = world.play(method, 1)
    x = world.federation.dataset.test_x
    answers = method.predictor(world.models(), only.personal[1])(x).argmax(1)
    assert set(answers.tolist()) <= {1, 2}


def test_only_the_model_moves(world: World) -> None:
    record = world.record("fedgela")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize(
    "wrong", [{"loss": "ce"}, {"scale": 0}, {"temperature_factor": 0}, {"adapt": "perhaps"}]
)
def test_a_parameter_outside_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        FedGELA(**wrong)


def test_it_passes_the_battery_with_its_switch_too() -> None:
    check_method("fedgela", loss="etf")
