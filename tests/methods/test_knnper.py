"""kNN-Per: the downloaded model and the client's own nearest samples answer together."""

from typing import Any

import pytest
import torch
from tests.methods.conftest import World, present
from tests.methods.differences import client_of
from torch import Tensor

from fedmap.check import check_method
from fedmap.errors import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.knnper import KNNPerParams, Neighbors, best_mix, kNNPer
from fedmap.nets import build
from fedmap.values import Values


def personal(world: World, number: int = 0, **params: Any) -> tuple[kNNPer, Values]:
    """A client's model after two rounds."""
    method = kNNPer(**params)
    return method, world.play(method)[-1].personal[number]


def by_hand(
    h: Tensor, y: Tensor, z: Tensor, k: int, sigma: float, without: int | None = None
) -> Tensor:
    """q of one feature z, sample by sample."""
    others = [i for i in range(len(y)) if i != without]
    far = {i: float((z.double() - h[i].double()).square().sum()) for i in others}
    q = torch.zeros(4, dtype=torch.double)
    for i in sorted(others, key=far.__getitem__)[:k]:
        q[int(y[i])] += torch.exp(torch.tensor(-far[i] / (len(z) * sigma)).double())
    return q / q.sum()


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("params", [{}, {"mix": 1.0, "neighbors": 1}])
def test_the_global_model_is_fedavgs_to_the_bit(
    world: World, net: str, params: dict[str, Any]
) -> None:
    assert world.same(world.play(kNNPer(**params), net=net), world.play(FedAvg(), net=net))


@pytest.mark.parametrize(("k", "sigma", "mix"), [(7, 1.0, 0.5), (3, 0.1, 0.8), (1, 10.0, 0.3)])
def test_answers_agree_with_the_formula(world: World, k: int, sigma: float, mix: float) -> None:
    method, own = personal(world, 1, neighbors=k, kernel=sigma, mix=mix)
    x, y = world.client(1, 1).train_data
    w = own["model"]
    h = world.features(w, x)
    torch.testing.assert_close(own["features"], h, rtol=0, atol=1e-5)
    assert torch.equal(own["labels"], y)
    tests = world.federation.dataset.test_x
    found = method.predictor(world.models(), own)(tests).exp().double()
    for sample, answer in zip(tests, found, strict=True):
        q = by_hand(h, y, world.features(w, sample[None])[0], k, sigma)
        expected = mix * q + (1 - mix) * torch.softmax(world.logits(w, sample[None])[0], 0)
        torch.testing.assert_close(answer, expected, rtol=0, atol=1e-4)


def test_the_model_that_answers_is_the_download_and_no_trained_one(world: World) -> None:
    first, second = world.play(kNNPer())
    for k in range(3):
        assert torch.equal(second.personal[k]["model"], first.server["model"])
        assert not torch.equal(second.personal[k]["model"], second.up[k]["model"])


def test_without_neighbors_it_answers_like_the_download_to_the_bit(world: World) -> None:
    method, own = personal(world, mix=0)
    x = world.federation.dataset.test_x
    expected = world.models().model(own["model"])(x)
    assert torch.equal(method.predictor(world.models(), own)(x), expected)


def test_neighbors_alone_never_answer_with_a_missing_class(world: World) -> None:
    method, own = personal(world, 1, mix=1)
    answers = method.predictor(world.models(), own)(world.federation.dataset.test_x)
    assert set(answers.argmax(1).tolist()) <= {1, 2}
    assert answers[:, [0, 3]].exp().eq(0).all()


def test_with_one_neighbor_alone_every_training_sample_gets_its_label(world: World) -> None:
    method, own = personal(world, 0, mix=1, neighbors=1)
    x, y = world.client(0, 1).train_data
    assert torch.equal(method.predictor(world.models(), own)(x).argmax(1), y)


def test_of_two_samples_that_are_nearly_the_same_the_nearer_one_answers(world: World) -> None:
    drawn = torch.randn(100, 84, generator=torch.Generator().manual_seed(0))
    features = 10 * drawn.relu()
    features = torch.cat([features, features + 0.001])
    labels = torch.arange(2).repeat_interleave(100)
    own = {"features": features, "labels": labels, "mix": torch.tensor(1.0)}
    params = kNNPer(neighbors=1, mix=1).params
    stored = Neighbors(world.models().model(world.initial().vector).net, own, params)
    assert torch.equal(stored.neighbors(features).argmax(1), labels)


def test_all_neighbors_under_a_wide_kernel_are_the_class_shares(world: World) -> None:
    method, own = personal(world, 0, mix=1, neighbors=1000, kernel=1e9)
    answers = method.predictor(world.models(), own)(world.federation.dataset.test_x).exp()
    n = world.federation.counts[0].float()
    torch.testing.assert_close(answers, (n / n.sum()).expand_as(answers), rtol=0, atol=1e-5)


def test_features_that_are_far_away_still_get_an_answer(world: World) -> None:
    """exp(-distance) of every neighbor would be zero."""
    method, own = personal(world, 0, mix=1)
    far = 1000 * world.federation.dataset.test_x
    answers = method.predictor(world.models(), own)(far).exp()
    torch.testing.assert_close(answers.sum(1), torch.ones(len(far)))


def test_a_client_chooses_the_mix_that_its_own_samples_speak_for(world: World) -> None:
    for number in (0, 1):
        _, own = personal(world, number, neighbors=3)
        w, h, y = own["model"], own["features"], own["labels"]
        x, _ = world.client(number, 1).train_data
        softmax = torch.softmax(world.logits(w, x), 1).double()
        q = torch.stack([by_hand(h, y, h[i], 3, 1.0, without=i) for i in range(len(y))])
        right = [int(((m * q + (10 - m) * softmax).argmax(1) == y).sum()) for m in range(11)]
        assert float(own["mix"]) == right.index(max(right)) / 10


def test_a_sample_has_no_say_about_itself() -> None:
    """Every sample's nearest other one has another label, and the model always says class 0: no mix
    is right about any of them. With its own entry in the store each would be."""
    net = build("tiny", (6,), 4, 0)
    torch.nn.init.zeros_(net.classifier.weight)
    features = torch.zeros(6, net.classifier.in_features)
    features[:, 0] = torch.tensor([0.0, 0.1, 10.0, 10.1, 20.0, 20.1])
    own = {
        "features": features,
        "labels": torch.tensor([1, 2, 2, 1, 1, 2]),
        "mix": torch.tensor(1.0),
    }
    stored = Neighbors(net, own, KNNPerParams(neighbors=1))
    assert torch.equal(stored.neighbors(features).argmax(1), own["labels"])
    assert best_mix(stored, own) == 0


def test_a_client_asks_the_last_download_at_the_end(world: World) -> None:
    method = kNNPer()
    (only,) = world.play(method, 1)
    kept = present(method.kept_personal(world.client(0, 2), method.download(only.server), {}))
    assert torch.equal(kept["model"], only.server["model"])
    assert not torch.equal(kept["features"], only.personal[0]["features"])


def test_the_store_stays_and_only_the_model_moves(world: World) -> None:
    (only,) = world.play(kNNPer(), 1)
    assert only.up[0].keys() == {"model"}
    assert only.states[0] == {}
    record = world.record("knnper")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("wrong", [{"neighbors": 0}, {"kernel": 0}, {"mix": 1.1}, {"mix": -0.1}])
def test_a_parameter_outside_its_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        kNNPer(**wrong)


def test_a_client_with_one_sample_answers_with_its_label() -> None:
    client, method = client_of([2]), kNNPer()
    personal = method.kept_personal(client, {"model": torch.linspace(-1, 1, 88)}, {})
    assert float(personal["mix"]) == 1
    predict = Neighbors(client.model(personal["model"]).net, personal, method.params)
    assert predict(client.train_data[0]).argmax(1).tolist() == [2]


def test_it_passes_the_battery_with_a_fixed_mix_too() -> None:
    check_method("knnper", mix=0.5)
