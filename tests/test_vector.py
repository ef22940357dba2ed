import torch

from fedmap.nets import build
from fedmap.vector import Model, WorkingModels


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
        assert torch.equal(by_name[name], parameter.grad), name
    assert model.grads.abs().sum() > 0


def test_buffers_come_after_the_weights_and_the_classifier_is_the_last_of_these() -> None:
    model = a_model()
    assert len(model.vector) == len(model.weights) + len(model.buffers)
    assert len(model.buffers) == 9  # mean and variance of four channels, and the batches counted
    assert torch.equal(model.vector[model.classifier_part], model.net.classifier.weight.flatten())
    assert model.features_part.stop == model.classifier_part.start


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
