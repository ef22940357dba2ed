import dataclasses
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedmap.client import MIN_STEPS, Client, Training
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.losses import cross_entropy
from fedmap.nets import Net, build
from fedmap.vector import Bench, Model, shorten


def a_client(
    federation: Federation, number: int = 0, round: int = 1, net: str = "tiny", **training: object
) -> Client:
    bench = Bench(lambda: build(net, federation.dataset.shape, federation.classes, 0))
    return Client(federation, number, round, Training(**training), 0, bench)


def initial(federation: Federation, net: str = "tiny") -> Model:
    return Model(build(net, federation.dataset.shape, federation.classes, 0))


def test_an_epoch_of_batches_is_every_sample_once(federation: Federation) -> None:
    client = a_client(federation, batch=7)
    per_epoch = -(-client.samples // 7)
    for _ in range(2):
        seen = torch.cat([x for x, _ in client.batches(per_epoch)])
        assert torch.equal(seen.sort(0).values, client.train_data[0].sort(0).values)


def test_a_second_stage_goes_on_in_the_stream_of_the_first(federation: Federation) -> None:
    whole = [y for _, y in a_client(federation, batch=4).batches(9)]
    client = a_client(federation, batch=4)
    parts = [y for steps in (2, 7) for _, y in client.batches(steps)]
    assert all(torch.equal(a, b) for a, b in zip(whole, parts, strict=True))


def test_batches_depend_on_round_and_client_only(federation: Federation) -> None:
    def first(**which: Any) -> torch.Tensor:
        return next(a_client(federation, **which).batches(1))[0]

    assert torch.equal(first(number=1, round=2), first(number=1, round=2))
    assert not torch.equal(first(number=1, round=2), first(number=1, round=3))


def test_the_budget_is_epochs_of_batches_but_at_least_five_steps(federation: Federation) -> None:
    samples = a_client(federation).samples
    assert a_client(federation, epochs=3, batch=4).steps == 3 * -(-samples // 4)
    assert a_client(federation, epochs=1, batch=1000).steps == MIN_STEPS


def test_training_is_sgd_with_momentum_and_decay(federation: Federation) -> None:
    client = a_client(federation, lr=0.1, weight_decay=0.01, batch=8)
    model = client.model(initial(federation).vector)
    client.train(model, cross_entropy, 6)

    net = build("tiny", federation.dataset.shape, federation.classes, 0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    losses = []
    for x, y in a_client(federation, batch=8).batches(6):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(
            model.named(model.vector)[name], parameter.detach(), rtol=1e-5, atol=1e-7
        )
    assert client.mean_loss == pytest.approx(sum(losses) / 6, rel=1e-5)


def test_a_frozen_model_sees_each_sample_once_and_says_the_same_as_when_asked_each_time(
    federation: Federation,
) -> None:
    client = a_client(federation, batch=7)
    model = initial(federation)
    asked = 0

    def outputs(x: torch.Tensor) -> torch.Tensor:
        nonlocal asked
        asked += len(x)
        return model(x)

    frozen = client.frozen(outputs)
    # a first stage: the frozen model is asked from the middle of an epoch on
    list(client.batches(2))
    for x, _ in client.batches(3 * -(-client.samples // 7)):
        said = frozen(x)
        assert not said.requires_grad
        torch.testing.assert_close(said, model(x))
    assert asked == client.samples

    other = torch.zeros_like(x)
    # not the batch of the moment: nothing is known of it
    torch.testing.assert_close(frozen(other), model(other))
    assert asked == client.samples + len(other)


def test_a_frozen_model_is_asked_each_time_where_samples_are_augmented(images: Federation) -> None:
    images.dataset = dataclasses.replace(images.dataset, augment=True)
    client, model = a_client(images, batch=8), initial(images)
    frozen = client.frozen(model)
    for x, _ in client.batches(2 * -(-client.samples // 8)):
        torch.testing.assert_close(frozen(x), model(x).detach())


def test_momentum_does_not_survive_from_one_stage_to_the_next(federation: Federation) -> None:
    client = a_client(federation)
    model = client.model(initial(federation).vector)
    client.train(model, cross_entropy, 5)
    before = model.vector.clone()
    client.train(model, cross_entropy, 1, lr_factor=0.5)
    fresh = a_client(federation)
    list(fresh.batches(5))
    again = fresh.model(before)
    fresh.train(again, cross_entropy, 1, lr_factor=0.5)
    assert torch.equal(again.vector, model.vector)


def test_a_correction_enters_each_step(federation: Federation) -> None:
    def stop(model: Model) -> None:
        model.grads.zero_()

    client = a_client(federation, weight_decay=0.0)
    start = initial(federation).vector
    model = client.model(start)
    client.train(model, cross_entropy, 5, correct=stop)
    assert torch.equal(model.vector, start)


def test_a_long_gradient_is_shortened_before_the_correction_and_a_short_one_is_left_alone(
    federation: Federation,
) -> None:
    start = initial(federation).vector

    def double(model: Model) -> None:
        model.grads.mul_(2)

    def moved(clip: float | None) -> Tensor:
        """Along the first gradient, with one step of plain SGD and a correction that doubles what
        it is given."""
        client = a_client(federation, clip=clip, momentum=0.0, weight_decay=0.0)
        model = client.model(start)
        client.train(model, cross_entropy, 1, correct=double)
        return (start - model.vector) / (2 * client.lr)

    free = moved(None)
    length = float(free.norm())
    torch.testing.assert_close(moved(length / 3), free / 3)
    assert torch.equal(moved(length * 3), free)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_not_hidden_by_a_limit(wrong: float) -> None:
    vector = torch.tensor([wrong, 1.0])
    shorten(vector, 1.0)
    torch.testing.assert_close(vector, torch.tensor([wrong, 1.0]), equal_nan=True)


def test_a_batch_of_one_sample_in_batch_norm_is_told(federation: Federation) -> None:
    client = a_client(federation, batch=1)
    features = nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(federation.dataset.shape), 4), nn.BatchNorm1d(4)
    )
    model = Model(Net(features, 4, federation.classes))
    with pytest.raises(
        FedmapError, match=r"client 0 has a batch of one sample.*another batch size than 1"
    ):
        client.train(model, cross_entropy, 1)


def test_warm_up_raises_the_learning_rate_linearly(federation: Federation) -> None:
    rates = [a_client(federation, round=r, lr=1.0, warmup_rounds=4).lr for r in (1, 2, 3, 4, 5)]
    assert rates == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert a_client(federation, round=1, lr=1.0).lr == 1.0


def test_a_loss_that_is_not_finite_is_told(federation: Federation) -> None:
    client = a_client(federation, number=2, round=3, lr=1e30)
    client.train(client.model(initial(federation).vector), cross_entropy, 20)
    with pytest.raises(FedmapError, match=r"client 2 is (nan|inf) in round 3 \(lr 1e\+30\)"):
        _ = client.mean_loss


def test_fresh_statistics_are_those_of_the_training_samples(images: Federation) -> None:
    client = a_client(images, net="tiny-bn")
    vector = initial(images, "tiny-bn").vector
    vector[-8:] = 77.0
    fresh = client.with_fresh_statistics(vector)
    layers = list(client.model(vector).net.features.children())
    activations = layers[0](client.train_data[0]).detach().transpose(0, 1).flatten(1)
    torch.testing.assert_close(fresh[-8:-4], activations.mean(1))
    torch.testing.assert_close(fresh[-4:], activations.var(1))
    assert torch.equal(fresh[:-8], vector[:-8])
    assert layers[1].momentum == 0.1
