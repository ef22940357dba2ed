import math
from typing import Any

import pytest
import torch
from torch import nn

from fedmap.nets import build
from fedmap.vector import SGD, Model, WorkingModels, shorten


def a_model(net: str = "tiny-bn", seed: int = 0) -> Model:
    return Model(build(net, (1, 8, 8), 4, seed))


def test_changing_the_vector_changes_the_net() -> None:
    model, x = a_model(), torch.ones(2, 1, 8, 8)
    before = model(x)
    model.vector[model.classifier_part] *= 2
    assert torch.equal(model(x), 2 * before)


def test_gradients_of_all_parameters_land_in_one_vector() -> None:
    model, x = a_model(), torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    net = build("tiny-bn", (1, 8, 8), 4, 0).eval()
    model(x).square().sum().backward()
    net(x).square().sum().backward()
    by_name = model.named(model.grads)
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(by_name[name], parameter.grad), name
    assert model.grads.abs().sum() > 0


def test_buffers_come_after_the_weights_and_the_classifier_is_the_last_of_these() -> None:
    model = a_model()
    assert len(model.vector) == len(model.weights) + len(model.buffers)
    assert len(model.buffers) == 9  # mean and variance of four channels, and the batches counted
    assert torch.equal(model.vector[model.classifier_part], model.net.classifier.weight.flatten())
    assert model.features_part == slice(0, model.classifier_part.start)


def test_frozen_parameters_are_part_of_the_state_but_not_of_what_is_trained() -> None:
    net = build("tiny-bn", (1, 8, 8), 4, 0)
    first = next(net.features.parameters())
    first.requires_grad_(False)
    model = Model(net)
    assert len(model.weights) == sum(p.numel() for p in net.parameters()) - first.numel()
    assert torch.equal(model.buffers[: first.numel()], first.flatten())
    assert torch.equal(model.vector[model.classifier_part], model.net.classifier.weight.flatten())
    model(torch.ones(2, 1, 8, 8)).sum().backward()
    assert first.grad is None
    assert model.grads.abs().sum() > 0


def test_names_lead_back_to_the_state_dict() -> None:
    model = a_model()
    state = model.net.state_dict()
    assert set(model.named(model.vector)) == set(state)
    for name, view in model.named(model.vector).items():
        assert torch.equal(view, state[name])


def test_training_mode_moves_the_statistics_in_the_vector() -> None:
    model = a_model()
    before = model.buffers.clone()
    model.net.train()
    model(torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(model.buffers, before)


def test_working_models_are_different_ones_until_they_are_released() -> None:
    models = WorkingModels(lambda: build("tiny", (6,), 4, 0))
    zeros = torch.zeros(len(Model(build("tiny", (6,), 4, 0)).vector))
    first, second = models.model(zeros), models.model(zeros + 1)
    assert first is not second
    assert first.vector.sum() == 0
    models.release()
    assert models.model(zeros) is first


def test_the_counter_of_batches_belongs_to_the_state_and_does_not_leak_into_the_next_one() -> None:
    model = a_model()
    (counter,) = (i for i, name in enumerate(model.names) if name.endswith("num_batches_tracked"))
    start = model.vector.clone()
    model.net.train()
    for _ in range(3):
        model(torch.ones(5, 1, 8, 8))
    assert model.named(model.vector)[model.names[counter]] == 3
    assert model.load(start).named(model.vector)[model.names[counter]] == 0
    layer = model.net.get_submodule(model.names[counter].rpartition(".")[0])
    assert layer.num_batches_tracked == 0
    assert layer.num_batches_tracked.dtype == torch.int64


def test_a_mean_of_counters_survives_a_working_model_to_the_bit() -> None:
    model = a_model()
    vector = model.vector.clone()
    vector[-1] = 8 / 3
    assert torch.equal(model.load(vector).vector, vector)
    model.net.train()
    model(torch.ones(5, 1, 8, 8))
    assert model.vector[-1] == vector[-1] + 1


def test_working_models_load_the_state_that_is_asked_for() -> None:
    models = WorkingModels(lambda: build("tiny", (6,), 4, 0))
    state = torch.arange(88.0)
    assert torch.equal(models.model(state).vector, state)
    models.release()
    model = models.model(-state)
    assert torch.equal(model.vector, -state)
    model.vector.zero_()
    assert state.sum() == 88 * 87 / 2  # what was given is not what is overwritten


def test_an_optimizer_of_the_weights_follows_the_gradients_of_the_net() -> None:
    model, x = a_model("tiny"), torch.ones(2, 1, 8, 8)
    before = model.vector.clone()
    model(x).square().sum().backward()
    SGD([model.weights], 0.1).step()
    assert model.grads.abs().sum() > 0
    torch.testing.assert_close(model.vector, before - 0.1 * model.grads)


def test_a_model_is_handed_out_in_evaluation_mode() -> None:
    assert not a_model().net.training


def test_names_are_in_the_order_of_the_vector() -> None:
    model = a_model()
    assert model.names == list(model.named(model.vector))


def test_a_vector_of_weights_alone_has_names_for_the_weights_alone() -> None:
    model = a_model()
    weights = model.named(model.weights.detach())
    assert set(weights) == {name for name, _ in model.net.named_parameters()}


def test_the_classifier_works_on_the_features() -> None:
    model, x = a_model(), torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    assert model.features(x).shape == (3, 16)
    assert torch.equal(model.classify(model.features(x)), model(x))


@pytest.mark.parametrize("rates", [{}, {"momentum": 0.9, "weight_decay": 0.1}])
def test_steps_of_several_vectors_are_those_of_torchs_optimizer(rates: dict[str, Any]) -> None:
    start = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    ours, torchs = ([nn.Parameter(row.clone()) for row in start[:2]] for _ in range(2))
    optimizers: Any = SGD(ours, 0.1, **rates), torch.optim.SGD(torchs, 0.1, **rates)
    for factor in (1.0, -0.5, 2.0):
        for vectors, optimizer in zip((ours, torchs), optimizers, strict=True):
            for vector in vectors:
                vector.grad = factor * start[2]
            optimizer.step()
    for own, reference in zip(ours, torchs, strict=True):
        torch.testing.assert_close(own, reference)


@pytest.mark.parametrize("longest", [1.0, 2.5, 5.0, 7.0])
def test_a_vector_is_shortened_along_its_direction_and_only_where_it_is_longer(
    longest: float,
) -> None:
    vector = torch.tensor([3.0, 4.0])
    shorten([vector], longest)
    torch.testing.assert_close(vector, torch.tensor([0.6, 0.8]) * min(longest, 5.0))


@pytest.mark.parametrize("wrong", [math.inf, math.nan])
def test_a_vector_that_is_not_finite_is_left_to_be_noticed(wrong: float) -> None:
    vector = torch.tensor([1.0, wrong])
    shorten([vector], 0.5)
    torch.testing.assert_close(vector, torch.tensor([1.0, wrong]), equal_nan=True)
