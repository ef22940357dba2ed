import dataclasses
import math
from itertools import combinations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn

from fedmap.client import MIN_STEPS, Answers, Client, Training, parts_of_two_or_more
from fedmap.errors import FedmapError
from fedmap.federation import ClientData, Federation
from fedmap.losses import cross_entropy
from fedmap.nets import Net, build
from fedmap.simulate import Settings
from fedmap.simulate.tasks import Setup
from fedmap.vector import Model, WorkingModels, shorten


def a_client(
    federation: Federation, number: int = 0, round: int = 1, net: str = "tiny", **training: Any
) -> Client:
    return Setup(Settings(net=net, **training), federation).client(number, round)


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


def test_batches_depend_on_seed_round_and_client_and_on_nothing_else(
    federation: Federation,
) -> None:
    def order(client: int = 1, round: int = 2, seed: int = 0, **training: Any) -> list[list[int]]:
        """Batches of numbered samples: every client has the same twelve."""
        x, y = torch.arange(12.0)[:, None], torch.arange(12) % 2
        data = ClientData(client, (x, y), (x, y), y, y > 0, (), (), augment=False)
        models = Setup(Settings(net="tiny"), federation).models
        drawn = Client(data, round, Settings(batch=4, **training), seed, models, 1.0).batches(6)
        return [x.flatten().int().tolist() for x, _ in drawn]

    assert order() == order() == order(lr=0.5, rounds=7)
    others = [order(client=0), order(round=3), order(seed=1)]
    assert all(one != two for one, two in combinations([order(), *others], 2))


def test_the_budget_is_epochs_of_batches_but_at_least_five_steps(federation: Federation) -> None:
    samples = a_client(federation).samples
    batches = -(-samples // 4)
    assert a_client(federation, epochs=3, batch=4).steps == 3 * batches
    assert a_client(federation, epochs=1, batch=1000).steps == MIN_STEPS == 5
    # A part of a step is not a step.
    assert a_client(federation, epochs=2.999, batch=4).steps == int(2.999 * batches) < 3 * batches


def test_no_step_is_lost_to_the_rounding_of_binary_numbers() -> None:
    x, y = torch.zeros(100, 6), torch.arange(100) % 4
    data = ClientData(0, (x, y), (x, y), torch.bincount(y), torch.ones(4) > 0, (), (), False)
    training = Settings(epochs=2.3, batch=1)
    assert 2.3 * 100 < 230
    models = WorkingModels(lambda: build("tiny", (6,), 4, 0))
    assert Client(data, 1, training, 0, models, 1.0).steps == 230


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
        outputs_now = frozen(x)
        assert not outputs_now.requires_grad
        torch.testing.assert_close(outputs_now, model(x))
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


def test_a_long_step_is_shortened_after_the_correction_and_a_short_one_is_left_alone(
    federation: Federation,
) -> None:
    start = initial(federation).vector

    def add(model: Model) -> None:
        model.grads.add_(0.3)

    def moved(clip: float | None) -> Tensor:
        """The step of plain SGD, with a correction that adds to what it is given."""
        client = a_client(federation, clip=clip, momentum=0.0, weight_decay=0.0)
        model = client.model(start)
        client.train(model, cross_entropy, 1, correct=add)
        return (start - model.vector) / client.lr

    free = moved(None)
    length = float(free.norm())
    torch.testing.assert_close(moved(length / 3), free / 3)
    assert torch.equal(moved(length * 3), free)


def test_the_length_of_a_step_counts_all_that_is_stepped_and_nothing_else(
    federation: Federation,
) -> None:
    """A part of the model and a parameter beside it: together they are one vector."""
    client = a_client(federation, clip=0.01, momentum=0.0, weight_decay=0.0)
    model = client.model(initial(federation).vector)
    start, beside = model.vector.clone(), nn.Parameter(torch.zeros(3))

    def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x), y) + (beside * torch.tensor([1.0, 2.0, 3.0])).sum()

    client.train(model, loss, 1, also=[beside], part=model.classifier_part)
    step = torch.cat([start - model.vector, -beside.detach()]) / client.lr
    assert float(step.norm()) == pytest.approx(0.01, rel=1e-4)
    assert float(beside.detach().norm()) > 0
    assert torch.equal(model.vector[model.features_part], start[model.features_part])


def test_parameters_beside_the_model_are_trained_like_the_models_own(
    federation: Federation,
) -> None:
    start = initial(federation).vector
    client = a_client(federation, batch=8)
    model, beside = client.model(start), nn.Parameter(torch.ones(4))
    client.train(model, lambda model, x, y: F.cross_entropy(model(x) * beside, y), 3, also=[beside])

    net = build("tiny", federation.dataset.shape, federation.classes, 0)
    scale = nn.Parameter(torch.ones(4))
    settings = client.training
    optimizer = torch.optim.SGD(
        [*net.parameters(), scale],
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    for x, y in a_client(federation, batch=8).batches(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x) * scale, y).backward()
        optimizer.step()
    torch.testing.assert_close(beside, scale)
    torch.testing.assert_close(model.vector, Model(net).vector)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_not_hidden_by_a_limit(wrong: float) -> None:
    vector = torch.tensor([wrong, 1.0])
    shorten([vector], 1.0)
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


def test_an_error_in_a_batch_of_two_samples_is_not_taken_for_batch_norms(
    federation: Federation,
) -> None:
    def loss(model: Model, x: Tensor, y: Tensor) -> Tensor:
        raise ValueError("of its own")

    client = a_client(federation, batch=2)
    with pytest.raises(ValueError, match=r"^of its own$"):
        client.train(client.model(initial(federation).vector), loss, 1)


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
    vector = initial(images, "tiny-bn").vector.clone()
    vector[-9:-1] = 77.0
    fresh = client.with_fresh_statistics(vector)
    net = client.model(vector).net
    activations = (
        net.get_submodule("features.0")(client.train_data[0]).detach().transpose(0, 1).flatten(1)
    )
    torch.testing.assert_close(fresh[-9:-5], activations.mean(1))
    torch.testing.assert_close(fresh[-5:-1], activations.var(1))
    assert torch.equal(fresh[:-9], vector[:-9])
    assert net.get_submodule("features.1").momentum == 0.1


def test_fresh_statistics_count_every_sample_alike_however_they_are_split() -> None:
    """Of 300 samples the last 50 are a part of their own; their values are far from the others."""
    x = torch.cat([torch.zeros(250, 6), torch.ones(50, 6)])
    y = torch.arange(300) % 4
    data = ClientData(0, (x, y), (x, y), torch.bincount(y), torch.ones(4) > 0, (), (), False)
    models = WorkingModels(lambda: build("tiny-bn", (6,), 4, 0))
    client = Client(data, 1, Settings(), 0, models, 1.0)
    model = Model(build("tiny-bn", (6,), 4, 0))
    fresh = client.with_fresh_statistics(model.vector)
    means = model.named(fresh)["features.1.running_mean"]
    inputs = model.net.get_submodule("features.0")(x).detach()
    torch.testing.assert_close(means, inputs.mean(0))


def test_a_vector_with_fresh_statistics_stays_as_it_is_when_its_working_model_goes_on(
    federation: Federation,
) -> None:
    setup = Setup(Settings(net="tiny-bn"), federation)
    fresh = setup.client(0, 1).with_fresh_statistics(setup.initial.vector)
    before = fresh.clone()
    setup.models.release()
    setup.models.model(torch.zeros_like(fresh))
    assert torch.equal(fresh, before)


@given(st.integers(1, 2000))
def test_no_part_has_one_sample_unless_that_is_all_there_is(samples: int) -> None:
    parts = parts_of_two_or_more(samples)
    assert sum(parts) == samples
    assert max(parts) <= 251
    assert min(parts) > 1 or samples == 1


def test_a_last_sample_alone_in_batch_norm_is_no_trouble() -> None:
    x, y = torch.randn(251, 6, generator=torch.Generator().manual_seed(0)), torch.arange(251) % 4
    data = ClientData(0, (x, y), (x, y), torch.bincount(y), torch.ones(4) > 0, (), (), False)
    models = WorkingModels(lambda: build("tiny-bn", (6,), 4, 0))
    model = Model(build("tiny-bn", (6,), 4, 0))
    fresh = Client(data, 1, Settings(), 0, models, 1.0).with_fresh_statistics(model.vector)
    inputs = model.net.get_submodule("features.0")(x).detach()
    torch.testing.assert_close(model.named(fresh)["features.1.running_mean"], inputs.mean(0))


def test_the_learning_rate_of_a_stage_is_the_rounds_times_its_factor(
    federation: Federation,
) -> None:
    start = initial(federation).vector

    def moved(factor: float) -> Tensor:
        client = a_client(federation, momentum=0.0, weight_decay=0.0)
        model = client.model(start)
        client.train(model, cross_entropy, 1, lr_factor=factor)
        return model.vector - start

    torch.testing.assert_close(moved(0.2), 0.2 * moved(1.0), rtol=1e-3, atol=1e-7)
    assert moved(1.0).norm() > 1e-4


def test_accuracy_is_the_share_of_the_clients_own_test_samples_that_are_right(
    federation: Federation,
) -> None:
    client = a_client(federation)
    x, y = client.test_data
    assert len(x) == len(y) == len(federation.test[0])
    for c in range(4):

        def always(x: Tensor, c: int = c) -> Tensor:
            return F.one_hot(torch.full((len(x),), c), 4)

        assert client.accuracy(always) == (y == c).double().mean().item()


def test_how_clients_train_is_the_papers_way_and_does_not_change() -> None:
    training: Any = Training()
    assert (training.rounds, training.fraction, training.epochs, training.batch) == (
        150,
        0.2,
        5,
        64,
    )
    assert (training.lr, training.momentum, training.weight_decay) == (0.03, 0.9, 1e-5)
    assert (training.clip, training.warmup_rounds) == (None, 0)
    with pytest.raises(ValidationError, match="frozen"):
        training.lr = 1.0


def test_values_at_the_edge_of_their_range_are_taken() -> None:
    Training(rounds=1, fraction=1, batch=1, momentum=0, weight_decay=0, warmup_rounds=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rounds", 0), ("fraction", 0), ("fraction", 1.01), ("epochs", 0), ("batch", 0), ("lr", 0),
        ("momentum", -0.01), ("momentum", 1), ("weight_decay", -1e-9), ("clip", 0),
        ("warmup_rounds", -1),
    ],
)  # fmt: skip
def test_values_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValidationError, match=name):
        Training.model_validate({name: value})


def test_a_clients_random_choices_are_its_own_in_each_round(federation: Federation) -> None:
    def drawn(number: int = 0, round: int = 1, **more: Any) -> float:
        return float(a_client(federation, number, round, **more).rng.random())

    numbers = [drawn(), drawn(number=1), drawn(round=2), drawn(seed=1)]
    assert drawn() == numbers[0]
    assert len(set(numbers)) == 4


def test_expected_participations_follow_from_how_many_clients_are_drawn(
    federation: Federation,
) -> None:
    """Six clients: a share of 0.5 draws three, one of 0.4 draws two, one of 0.01 draws one."""
    for fraction, drawn in ((0.5, 3), (0.4, 2), (0.01, 1)):
        client = a_client(federation, rounds=30, fraction=fraction)
        assert client.expected_participations == pytest.approx(30 * drawn / 6)


def test_a_site_with_only_its_own_samples_trains_to_the_bits_of_the_simulators_client(
    federation: Federation,
) -> None:
    """The same samples and split, one from a federation and one without any."""
    whole = federation.client(2)
    alone = ClientData(
        2,
        (whole.train[0].clone(), whole.train[1].clone()),
        (whole.test[0].clone(), whole.test[1].clone()),
        whole.counts.clone(),
        whole.observed.clone(),
        (),
        (),
        augment=False,
    )
    vectors = []
    for data in (whole, alone):
        models = WorkingModels(lambda: build("tiny", (6,), 4, 0))
        client = Client(data, 3, Settings(), 7, models, 1.0)
        model = client.model(Model(build("tiny", (6,), 4, 0)).vector)
        client.train(model, cross_entropy, 6)
        vectors.append(model.vector.clone())
    assert torch.equal(*vectors)


def test_among_own_classes_the_largest_logit_of_an_observed_class_answers() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]])
    labels = torch.tensor([1, 1, 2, 0])
    answers = Answers(logits, labels, torch.tensor([False, True, True]))
    assert answers.among_all.tolist() == [0, 1, 2, 0]
    assert answers.accuracy == 3 / 4
    assert answers.accuracy_observed == 3 / 4  # 1, 1, 2, 2: the first is right now, the last wrong
    assert answers.confusion.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]


def test_with_all_classes_both_accuracies_are_the_same() -> None:
    logits, labels = torch.randn(50, 4), torch.arange(50) % 4
    answers = Answers(logits, labels, torch.ones(4, dtype=torch.bool))
    assert answers.accuracy == answers.accuracy_observed
