"""FedProto: prototypes of classes are shared, models are not."""

import pytest
import torch
from tests.methods.conftest import World, present
from torch import Tensor

from fedmap.errors import FedmapError
from fedmap.methods import Upload
from fedmap.methods.fedproto import FedProto, class_means


@pytest.mark.parametrize("epochs", [2, 3])  # at least five steps are made: 3 are whole epochs
def test_two_rounds_agree_with_the_formula(world: World, epochs: int) -> None:
    history = world.play(FedProto(weight=0.7), epochs=epochs)
    own = {k: world.initial().vector for k in range(3)}
    prototypes: dict[int, Tensor] = {}
    for round in (1, 2):
        collected: dict[int, list[Tensor]] = {c: [] for c in range(4)}
        for k in range(3):
            seen: list[tuple[Tensor, int]] = []

            def loss(
                w: Tensor,
                x: Tensor,
                y: Tensor,
                known: dict[int, Tensor] = prototypes,
                seen: list[tuple[Tensor, int]] = seen,
            ) -> Tensor:
                h = world.features(w, x)
                seen.extend(zip(h.detach(), y.tolist(), strict=True))
                away = [
                    (h_i - known[c]).square().mean() if c in known else 0 * h_i.sum()
                    for h_i, c in zip(h, y.tolist(), strict=True)
                ]
                return world.cross_entropy(w, x, y) + 0.7 * torch.stack(away).mean()

            batches = world.batches(k, round, world.client(k, round, epochs=epochs).steps)
            own[k] = world.sgd(own[k], batches, loss)
            assert torch.allclose(history[round - 1].personal[k]["model"], own[k], atol=1e-6)
            an_epoch = -(-world.client(k, round).samples // 8)
            if len(batches) % an_epoch:  # no whole epoch at the end: the trained model's features
                x, y = world.client(k, round).train_data
                seen = list(zip(world.features(own[k], x), y.tolist(), strict=True))
            seen = seen[-sum(len(y) for _, y in batches[-an_epoch:]) :]
            for c in {c for _, c in seen}:
                collected[c].append(world.mean(h for h, label in seen if label == c))
        prototypes = {c: world.mean(rows) for c, rows in collected.items() if rows}
        for c, prototype in prototypes.items():
            assert torch.allclose(history[round - 1].server["prototypes"][c], prototype, atol=1e-6)


def test_without_pull_each_client_trains_alone(world: World) -> None:
    alone = world.play(FedProto(weight=0), selected=[[0], [0]])
    together = world.play(FedProto(weight=0))
    pulled = world.play(FedProto(weight=1))
    assert torch.equal(alone[1].personal[0]["model"], together[1].personal[0]["model"])
    assert not torch.equal(pulled[1].personal[0]["model"], together[1].personal[0]["model"])


def test_classes_that_nobody_has_shown_yet_do_not_pull(world: World) -> None:
    # Only client 2, which holds class 3 alone, takes part at first; client 0 holds 0 and 1.
    pulled, free = (world.play(FedProto(weight=weight), selected=[[2], [0]]) for weight in (5, 0))
    assert pulled[0].server["known"].tolist() == [0, 0, 0, 1]
    assert torch.equal(pulled[1].personal[0]["model"], free[1].personal[0]["model"])


def test_a_class_that_nobody_of_the_round_holds_keeps_its_prototype(world: World) -> None:
    first, second = world.play(FedProto(), selected=[[0, 1, 2], [0, 1]])
    assert first.server["known"].tolist() == second.server["known"].tolist() == [1, 1, 1, 1]
    assert torch.equal(first.server["prototypes"][3], second.server["prototypes"][3])
    assert not torch.equal(first.server["prototypes"][0], second.server["prototypes"][0])


def test_a_prototype_is_the_mean_over_the_clients_that_hold_the_class(world: World) -> None:
    method = FedProto()
    nothing = torch.zeros(4, 8)
    one, other = ({"prototypes": nothing.clone(), "known": torch.zeros(4)} for _ in range(2))
    one["prototypes"][1], one["known"][1] = 2.0, 1
    other["prototypes"][1:3], other["known"][1:3] = 4.0, 1
    server = world.setup(method).server(1)
    uploads = [
        Upload(0, 1 / 3, one),
        Upload(1, 1 / 3, other),
        Upload(2, 1 / 3, {"prototypes": nothing, "known": torch.zeros(4)}),
    ]
    state = method.aggregate(server, method.start(world.initial()), uploads)
    assert torch.allclose(state["prototypes"], torch.tensor([0.0, 3, 4, 0])[:, None].expand(4, 8))
    assert state["known"].tolist() == [0, 1, 1, 0]


def test_a_class_is_known_from_its_first_sample_on() -> None:
    h = torch.tensor([[1.0, 5.0], [2.0, 6.0], [4.0, 8.0]])
    means = class_means(h, torch.tensor([0, 2, 2]), 4)
    assert means["prototypes"].tolist() == [[1, 5], [0, 0], [3, 7], [0, 0]]
    assert means["known"].tolist() == [1, 0, 1, 0]


def test_prototypes_move_and_models_stay(world: World) -> None:
    method = FedProto()
    (only,) = world.play(method, 1)
    assert method.global_model(only.server) is None
    for sent in (only.up[2], method.download(only.server)):
        shapes = {name: tuple(value.shape) for name, value in sent.items()}
        assert shapes == {"prototypes": (4, 8), "known": (4,)}
    assert only.up[2]["known"].tolist() == [0, 0, 0, 1]  # which classes, but not how many samples
    assert not only.up[2]["prototypes"][:3].any()


def test_a_client_keeps_its_model_from_its_first_participation_on(world: World) -> None:
    world.assert_kept(FedProto())


def test_a_client_starts_from_its_own_model(world: World) -> None:
    method = FedProto()
    (only,) = world.play(method, 1)
    before = present(method.downloaded({}, only.states[1]))
    assert torch.equal(before["model"], only.personal[1]["model"])


def test_batch_norm_nets_are_kept_whole(world: World) -> None:
    (only,) = world.play(FedProto(), 1, net="tiny-bn")
    count = world.initial("tiny-bn").weight_count
    assert not torch.equal(only.personal[0]["model"][count:], world.initial("tiny-bn").buffers)


def test_a_negative_lambda_is_refused() -> None:
    with pytest.raises(FedmapError, match=r"method fedproto: weight is -1"):
        FedProto(weight=-1)
