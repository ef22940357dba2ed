from typing import Any

import pytest
import torch
from tests.methods.conftest import World
from torch import Tensor

from fedmap import FedmapError
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.parts.control import ControlParams
from fedmap.methods.scaffold import Scaffold
from fedmap.simulate import Settings


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_first_round_is_plain_sgd_to_the_bit_and_the_second_is_not(
    world: World, net: str, clip: float | None
) -> None:
    ours = world.play(Scaffold(), net=net, clip=clip)
    plain = world.play(FedAvg(), net=net, clip=clip, momentum=0, weight_decay=0)
    assert world.same(ours[:1], plain[:1])
    assert not world.same(ours[1:], plain[1:])


def test_the_servers_variate_is_the_mean_of_all_clients(world: World) -> None:
    selected = [[0, 1], [2], [0, 2], [0, 1, 2]]
    for played in world.play(Scaffold(server_lr=0.7), 4, selected=selected):
        mean = world.mean(played.states[k]["control"] for k in range(3))
        torch.testing.assert_close(played.server["control"], mean)
        assert mean.abs().max() > 0.01 / 3


def test_a_clients_variate_is_the_mean_gradient_along_its_way(world: World) -> None:
    """Option II by what it means: the corrections cancel, whatever c and c_k were."""
    down = world.play(Scaffold(), 1)[0].server
    state = {"control": torch.randn(88, generator=torch.Generator().manual_seed(0)) / 10}
    method: Scaffold[ControlParams] = Scaffold()
    kept = method.local_round(world.client(1, 2), down, state).state["control"]
    w = down["model"]
    gradients: list[Tensor] = []
    for x, y in world.batches(1, 2):
        at = w.clone().requires_grad_()
        gradients += torch.autograd.grad(world.cross_entropy(at, x, y), at)
        w = w - 0.1 * (gradients[-1] + down["control"] - state["control"])
    torch.testing.assert_close(kept, world.mean(gradients), atol=1e-5, rtol=1e-4)


def test_three_rounds_agree_with_algorithm_1_of_the_paper(world: World) -> None:
    selected, eta_g, lr = [[0, 1, 2], [0, 2], [1, 2]], 0.75, 0.1
    x, c, c_k = world.initial().vector, torch.zeros(88), dict.fromkeys(range(3), torch.zeros(88))
    for round, played in enumerate(world.play(Scaffold(server_lr=eta_g), 3, selected=selected), 1):
        moves, changes = [], []
        for k in selected[round - 1]:
            batches = world.batches(k, round)

            def loss(w: Tensor, data: Tensor, y: Tensor, shift: Tensor = c - c_k[k]) -> Tensor:
                return world.cross_entropy(w, data, y) + shift @ w

            y = world.sgd(x, batches, loss, momentum=0, decay=0)
            new = c_k[k] - c + (x - y) / (len(batches) * lr)
            moves.append(y - x)
            changes.append(new - c_k[k])
            c_k[k] = new
        x = x + eta_g * world.mean(moves)
        c = c + len(moves) / 3 * world.mean(changes)
        torch.testing.assert_close(played.server["model"], x, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(played.server["control"], c, atol=1e-5, rtol=1e-4)


def test_the_runs_clip_bounds_the_corrected_gradient(world: World) -> None:
    down = {"model": world.initial().vector, "control": torch.full((88,), 0.05)}
    state = {"control": torch.full((88,), -0.05)}
    method: Scaffold[ControlParams] = Scaffold()
    local = method.local_round(world.client(0, 1, clip=1.1), down, state)
    w, lengths, steps = down["model"], [], []
    for x, y in world.batches(0, 1):
        at = w.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(world.cross_entropy(at, x, y), at)
        corrected = gradient + 0.1
        lengths.append(float(corrected.norm()))
        steps.append(corrected * min(1.1 / lengths[-1], 1))
        w = w - 0.1 * steps[-1]
    assert min(lengths) < 1.1 < max(lengths)  # some are shortened, some are not
    torch.testing.assert_close(local.up["model"], w, atol=1e-5, rtol=1e-4)
    kept = world.mean(steps) - 0.1  # c_k - c + (w_t - w_k) / (N lr)
    torch.testing.assert_close(local.state["control"], kept, atol=1e-5, rtol=1e-4)


def test_the_variate_divides_by_the_learning_rate_that_was_used_while_warming_up(
    world: World,
) -> None:
    """In round 1 of 4 the rate is a quarter; a mean gradient does not depend on it by more than the
    way differs."""
    (warm,) = world.play(Scaffold(), 1, lr=0.04, warmup_rounds=4)
    (whole,) = world.play(Scaffold(), 1, lr=0.01)
    assert torch.equal(warm.states[0]["control"], whole.states[0]["control"])


def test_statistics_of_batch_norm_follow_the_servers_step_and_have_no_variate(world: World) -> None:
    start = world.initial("tiny-bn")
    played = world.play(Scaffold(server_lr=0.5), 1, net="tiny-bn")[0]
    statistics = slice(start.weight_count, None)
    means = world.mean(played.up[k]["model"][statistics] for k in range(3))
    torch.testing.assert_close(played.server["model"][statistics], (start.buffers + means) / 2)
    assert len(played.server["control"]) == start.weight_count


def test_a_variate_travels_beside_the_model_each_way(world: World) -> None:
    record = world.record("scaffold", "tiny-bn")
    weights, statistics = 88 + 16, 17
    assert record["bytes_down"] == record["bytes_up"] == 3 * 4 * (2 * weights + statistics)


@pytest.mark.parametrize("wrong", [{"server_lr": 0}, {"server_lr": 1.5}])
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(FedmapError, match=next(iter(wrong))):
        Scaffold(**wrong)


@pytest.mark.parametrize("method", ["scaffold", "scars", "scamap"])
def test_a_setting_of_the_run_is_no_parameter_and_the_refusal_says_where_it_belongs(
    method: str,
) -> None:
    sentence = f"{method} has no parameter 'clip': it is a setting of the run, --clip"
    with pytest.raises(FedmapError, match=sentence):
        Settings.of({"method": method, "params": {"clip": 10}})


@pytest.mark.parametrize("method", ["scaffold", "scars", "scamap"])
def test_it_wants_a_limit_on_steps_that_the_user_may_change(method: str) -> None:
    assert Settings.of({"method": method}).clip == 10
    assert Settings.of({"method": method, "clip": 3.0}).clip == 3
    assert Settings.of({"method": "map"}).clip is None
