"""FedRS: its limits and its equation."""

import pytest
import torch
import torch.nn.functional as F
from tests.methods.conftest import World
from torch import Tensor

from fedmap import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedrs import FedRS


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_with_alpha_one_it_is_fedavg_to_the_bit(world: World, net: str) -> None:
    assert world.same(world.play(FedRS(alpha=1), net=net), world.play(FedAvg(), net=net))


@pytest.mark.parametrize("mode", ["binary", "soft", "share"])
def test_two_rounds_agree_with_the_softmax_of_scaled_logits(world: World, mode: str) -> None:
    w = world.initial().vector
    for round, played in enumerate(world.play(FedRS(alpha=0.3, mode=mode)), 1):
        uploads = []
        for k in range(3):
            n = torch.bincount(world.client(k, 1).train_data[1], minlength=4)
            scale = {
                "binary": torch.where(n > 0, 1, 0.3),
                "soft": 0.3 + 0.7 * n / n.max(),
                "share": n / n.sum(),
            }[mode]

            def loss(w: Tensor, x: Tensor, y: Tensor, scale: Tensor = scale) -> Tensor:
                return F.cross_entropy(world.logits(w, x) * scale, y)

            uploads.append(world.sgd(w, world.batches(k, round), loss))
        w = world.mean(uploads)
        torch.testing.assert_close(played.server["model"], w)


def test_with_alpha_zero_the_proxies_of_missing_classes_do_not_move(world: World) -> None:
    (only,) = world.play(FedRS(alpha=0), 1, weight_decay=0)
    moved = (only.up[0]["model"] != world.initial().vector)[56:].view(4, 8).any(1)
    assert moved.tolist() == [True, True, False, False]  # client 0 has the classes 0 and 1


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("fedrs")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


@pytest.mark.parametrize("alpha", [-0.1, 1.1])
def test_alpha_is_a_share(alpha: float) -> None:
    sentence = "method fedrs: alpha is .* allowed: number from 0 up to 1"
    with pytest.raises(FedmapError, match=sentence):
        FedRS(alpha=alpha)


def test_without_factors_none_can_answer() -> None:
    with pytest.raises(FedmapError, match=r"method fedrs: factors is True; .* mode removed: False"):
        FedRS(mode="removed", factors=True)


def test_with_its_factors_a_client_answers_as_it_was_trained(world: World) -> None:
    method = FedRS(alpha=0.5, mode="soft", factors=True)
    client, models = world.client(0, 1), world.models()
    local = method.local_round(client, {"model": world.initial().vector}, {})
    x = client.test_data[0]
    n = torch.bincount(client.train_data[1], minlength=4)
    answers = method.predictor(models, local.personal)(x)
    expected = world.logits(local.up["model"], x) * (0.5 + 0.5 * n / n.max())
    torch.testing.assert_close(answers, expected)
    plain = FedRS().predictor(models, {"model": local.up["model"]})(x)
    torch.testing.assert_close(plain, world.logits(local.up["model"], x))
