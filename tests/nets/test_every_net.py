"""What holds for every registered net."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedmap.nets import NETS, build, line, size
from fedmap.vector import Model

SHAPE, CLASSES = (1, 32, 32), 10


@pytest.fixture(scope="module", params=sorted(NETS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def only_model(name: str) -> Model:
    return Model(build(name, SHAPE, CLASSES, seed=1))


@pytest.fixture
def model(only_model: Model) -> Iterator[Model]:
    """One model for each net; what a test does to it is undone."""
    before = only_model.vector.clone()
    yield only_model
    only_model.load(before).grads.zero_()
    only_model.net.eval()


def samples(n: int) -> torch.Tensor:
    return torch.randn(n, *SHAPE, generator=torch.Generator().manual_seed(0))


def test_logits_are_the_features_times_a_classifier_without_bias(model: Model) -> None:
    with torch.no_grad():
        h = model.features(samples(2))
        assert h.shape == (2, model.net.classifier.in_features)
        assert torch.equal(model(samples(2)), h @ model.net.classifier.weight.T)
    assert model.net.classifier.weight.shape == (CLASSES, h.shape[1])
    assert model.net.classifier.bias is None


def test_a_gradient_reaches_every_layer_and_a_step_against_it_lowers_the_loss(model: Model) -> None:
    x, y = samples(4), torch.arange(4)
    model.net.train()
    loss = cross_entropy(model(x), y)
    loss.backward()
    assert torch.isfinite(model.grads).all()
    grads = model.named(model.grads)
    assert all(grad.any() for name, grad in grads.items() if name.endswith("weight"))
    with torch.no_grad():
        model.vector[: model.weight_count] -= 1e-3 * model.grads / model.grads.norm()
        assert cross_entropy(model(x), y) < loss


def test_it_trains_on_a_batch_of_one_sample(model: Model) -> None:
    model.net.train()
    cross_entropy(model(samples(1)), torch.tensor([3])).backward()
    assert torch.isfinite(model.grads).all()


def test_parameters_and_statistics_are_views_of_one_vector_in_its_order(model: Model) -> None:
    tensors = dict(model.net.named_parameters()) | dict(model.net.named_buffers())
    assert set(tensors) == set(model.names)
    at = 0
    for name in model.names:
        if tensors[name].is_floating_point():  # counters are copies
            assert tensors[name].data_ptr() == model.vector[at:].data_ptr()
        at += tensors[name].numel()
    assert at == len(model.vector)


def test_the_classifier_is_the_last_of_the_weights_and_statistics_follow(model: Model) -> None:
    assert torch.equal(model.vector[model.classifier_part], model.net.classifier.weight.flatten())
    weights = sum(p.numel() for p in model.net.parameters())
    assert model.classifier_part.stop == model.weight_count == weights
    assert len(model.buffers) == sum(b.numel() for b in model.net.buffers())


def test_training_moves_the_running_statistics_inside_the_vector(model: Model) -> None:
    before = model.buffers.clone()
    model.net.train()
    model(samples(2))
    norms = any(isinstance(layer, nn.BatchNorm2d) for layer in model.net.modules())
    assert (len(before) > 0) == norms
    assert torch.equal(before, model.buffers) == (not norms)


def test_it_is_counted_without_being_made(name: str, model: Model) -> None:
    assert size(name, SHAPE, CLASSES) == model.weight_count


def test_one_line_says_what_it_is(name: str) -> None:
    assert line(name).endswith(".")


def test_linear_layers_are_drawn_with_the_given_deviation() -> None:
    plain, small = (build("lenet", (1, 28, 28), 10, 3, deviation) for deviation in (None, 0.01))
    for layer in small.modules():
        if isinstance(layer, nn.Linear):
            assert abs(layer.weight.std().item() - 0.01) < 0.001
            assert layer.bias is None or not layer.bias.any()
    same, other = (
        [m.weight for m in net.modules() if isinstance(m, nn.Conv2d)] for net in (plain, small)
    )
    assert all(map(torch.equal, same, other))
    assert not torch.equal(plain.classifier.weight, small.classifier.weight)
