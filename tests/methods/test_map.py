"""MAP: its limits, Algorithm 1 by its equations, the moving average of the HPM and its batch norm,
the schedules."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tests.methods.conftest import World, present
from torch import Tensor

from fedmap import FedmapError, client, run
from fedmap.methods import METHODS, AnyMethod
from fedmap.methods.fedavg import FedAvg
from fedmap.methods.fedphp import FedPHP
from fedmap.methods.fedrs import FedRS
from fedmap.methods.map import MAP, MAPParams
from fedmap.methods.parts.hpm import HPMParams, inherit, no_hpm
from fedmap.methods.scamap import ScaMAP
from fedmap.values import Values, number


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
def test_without_its_two_ideas_it_is_fedavg_to_the_bit(world: World, net: str) -> None:
    ours = world.play(MAP(alpha=1, weight=0, stage_one=1, stage_two=0), net=net)
    assert world.same(ours, world.play(FedAvg(), net=net))


@pytest.mark.parametrize("mode", ["binary", "soft", "share"])
def test_its_global_model_is_fedrss_to_the_bit_whatever_stage_two_does(
    world: World, mode: str
) -> None:
    ours = world.play(MAP(alpha=0.5, mode=mode, stage_two=0.5, weight=0.3), 3)
    fedrs = world.play(FedRS(alpha=0.5, mode=mode), 3)
    assert world.same(ours, fedrs)
    assert not torch.equal(ours[0].personal[0]["model"], ours[0].up[0]["model"])


@pytest.mark.parametrize(("transfer", "share"), [("kd", 0.2), ("mmd", 0.2), ("kd", 1)])
def test_three_rounds_agree_with_algorithm_1(world: World, transfer: str, share: float) -> None:
    """Stage two goes on in the stream of batches, with a fresh momentum and its own rate."""
    method: MAP[MAPParams] = MAP(
        alpha=0.4, transfer=transfer, weight=share, hpm_momentum=0.8,
        stage_one=0.5, stage_two=1, stage_two_lr=0.3,
    )  # fmt: skip
    scale = torch.tensor([[1, 1, 0.4, 0.4], [0.4, 1, 1, 0.4], [0.4, 0.4, 0.4, 1]])
    w, hpms = world.initial().vector, dict[int, Tensor]()
    for round, played in enumerate(world.play(method, 3), 1):
        uploads = []
        for k in range(3):
            hpm = hpms.get(k)

            def restricted(w: Tensor, x: Tensor, y: Tensor, scale: Tensor = scale[k]) -> Tensor:
                return F.cross_entropy(world.logits(w, x) * scale, y)

            def taught(w: Tensor, x: Tensor, y: Tensor, hpm: Tensor | None = hpm) -> Tensor:
                if hpm is None:
                    return world.cross_entropy(w, x, y)
                return world.taught(w, x, y, hpm, share, transfer)

            steps = world.client(k, round).steps
            batches = world.batches(k, round, steps // 2 + steps)
            uploads.append(world.sgd(w, batches[: steps // 2], restricted))
            personal = world.sgd(uploads[k], batches[steps // 2 :], taught, lr=0.3 * 0.1)
            mu = 0.8 * (round - 1) / 4  # Q T = 4 participations are expected
            hpms[k] = (1 - mu) * personal + mu * hpms.get(k, personal)
            torch.testing.assert_close(played.up[k]["model"], uploads[k], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(played.personal[k]["model"], hpms[k], rtol=1e-4, atol=1e-5)
        w = world.mean(uploads)
        torch.testing.assert_close(played.server["model"], w, rtol=1e-4, atol=1e-5)


def test_the_hpm_is_the_moving_average_of_five_participations_by_hand(world: World) -> None:
    # One of three clients is drawn each round, int(0.5 * 3), so 8 rounds ask each 8 / 3 times.
    asked = world.client(0, 1, rounds=8, fraction=0.5)
    model = world.initial()
    state, by_hand = no_hpm(model), 0.0
    for participation, value in enumerate([1.0, 5.0, 2.0, 8.0, 3.0]):
        model.vector.fill_(value)
        state = inherit(asked, state, model, HPMParams(hpm_momentum=0.9))
        mu = min(0.9 * participation / (8 / 3), 1.0)
        by_hand = (1 - mu) * value + mu * by_hand
    torch.testing.assert_close(state["hpm"], torch.full_like(model.vector, by_hand))
    assert state["participations"] == 5


def test_momentum_is_limited_to_one(world: World) -> None:
    """A client selected far more often than expected keeps its HPM instead of moving past it."""
    ones = torch.ones(88)
    state = {"hpm": ones, "participations": number(50)}
    kept = inherit(world.client(0, 1, rounds=1), state, world.initial(), HPMParams())
    assert torch.equal(kept["hpm"], ones)


def bn_inputs(world: World, k: int, hpm: Tensor) -> Tensor:
    """What goes into the batch norm of this model for each of the client's training samples."""
    x, _ = world.client(k, 1).train_data
    return x @ hpm[:48].view(8, 6).T + hpm[48:56]


@pytest.mark.parametrize("kind", [MAP, FedPHP, ScaMAP])
def test_batch_norm_of_the_hpm_has_the_statistics_of_the_clients_samples_under_its_weights(
    world: World, kind: type[AnyMethod]
) -> None:
    model = world.initial("tiny-bn")
    for played in world.play(kind(), net="tiny-bn"):
        for k in range(3):
            hpm = played.states[k]["hpm"]
            inputs, statistics = bn_inputs(world, k, hpm), model.named(hpm)
            torch.testing.assert_close(statistics["features.1.running_mean"], inputs.mean(0))
            torch.testing.assert_close(statistics["features.1.running_var"], inputs.var(0))
            assert torch.equal(hpm, played.personal[k]["model"])


@pytest.mark.parametrize("kind", [MAP, FedPHP, ScaMAP])
def test_every_sample_counts_alike_in_the_statistics_of_an_hpm(
    world: World, kind: type[AnyMethod], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "EVALUATION_BATCH", 9)
    sizes = [client.parts_of_two_or_more(world.client(k, 1).samples) for k in range(3)]
    assert any(parts[-1] != parts[0] for parts in sizes)
    (only,) = world.play(kind(), 1, net="tiny-bn")
    for k in range(3):
        hpm = only.states[k]["hpm"]
        means = world.initial("tiny-bn").named(hpm)["features.1.running_mean"]
        torch.testing.assert_close(means, bn_inputs(world, k, hpm).mean(0))


def test_a_client_keeps_its_hpm_from_its_first_participation_on(world: World) -> None:
    world.assert_kept(MAP())


def test_a_client_that_never_took_part_still_gets_a_personal_model(world: World) -> None:
    result = run("map", world.federation, net="tiny", rounds=1, fraction=0.4, epochs=1)
    (taken,) = [one["client"] for one in result.rounds[0]["clients"]]
    x = world.federation.test_x
    for never in {0, 1, 2} - {taken}:
        assert not torch.equal(result.personal_model(never)(x), present(result.global_model)(x))


def test_only_the_model_moves_each_way(world: World) -> None:
    record = world.record("map")
    assert record["bytes_down"] == record["bytes_up"] == 3 * 88 * 4


def stages(steps: int, **params: float | str) -> tuple[int, int]:
    method: MAP[MAPParams] = MAP(**params)
    return method.stages(steps)


@given(st.integers(5, 10_000))
def test_printed_stages_share_the_steps_in_halves_and_lose_none(steps: int) -> None:
    assert stages(steps, preset="printed") == (steps // 2, max(steps - steps // 2, 5))


@given(st.integers(5, 10_000))
def test_released_stages_are_all_steps_and_a_tenth_more(steps: int) -> None:
    assert stages(steps, preset="released") == (steps, max(steps // 10, 5))


def test_no_step_of_a_stage_is_lost_to_the_rounding_of_binary_numbers() -> None:
    assert 0.29 * 100 < 29
    assert stages(100, stage_one=0.29, stage_two=0.29) == (29, 29)


def test_a_stage_two_without_a_share_has_no_step() -> None:
    assert stages(100, stage_two=0) == (100, 0)


def test_a_preset_is_a_starting_point_for_given_values() -> None:
    method: MAP[MAPParams] = MAP(preset="released", stage_two=0.3)
    params = method.params
    assert (params.stage_one, params.stage_two, params.stage_two_lr) == (1.0, 0.3, 0.2)


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    sentence = r"no preset 'relaesed'; did you mean 'released'\? there are: own, printed, released"
    with pytest.raises(FedmapError, match=f"method map has {sentence}"):
        MAP(preset="relaesed")


def own(**params: Any) -> MAP[MAPParams]:
    return MAP(preset="own", **params)


def answers(world: World, method: AnyMethod, personal: Values, x: Tensor) -> Tensor:
    with torch.no_grad():
        return method.predictor(world.models(), personal)(x)


def test_what_the_preset_own_sets() -> None:
    assert own().params == MAP(mode="removed", own=True, opinion=0.5).params


def test_with_its_three_parameters_off_the_preset_own_is_map_to_the_bit(world: World) -> None:
    plain = own(mode="binary", own=False, opinion=0)
    one, other = (world.play(method) for method in (plain, MAP()))
    assert world.same(one, other)
    for ours, theirs in zip(one, other, strict=True):
        for k, personal in ours.personal.items():
            assert personal.keys() == {"model"}
            assert torch.equal(personal["model"], theirs.personal[k]["model"])


@pytest.mark.parametrize("net", ["tiny", "tiny-bn"])
@pytest.mark.parametrize("params", [{}, {"opinion": 1.0}, {"weight": 0.5}, {"stage_two": 0}])
def test_with_missing_classes_removed_the_global_model_is_fedrods(
    world: World, params: dict[str, Any], net: str
) -> None:
    ours, fedrods = (world.play(m, net=net) for m in (own(**params), METHODS["fedrod"]()))
    assert world.same(ours, fedrods)


def test_an_answer_is_the_mean_of_two_softmaxes_over_the_clients_own_classes(world: World) -> None:
    method = own(opinion=0.3)
    personal = world.play(method)[-1].personal[1]
    x, kept = world.federation.test_x, world.federation.observed[1]
    assert not kept.all()
    shares = [
        torch.where(kept, world.logits(personal[name], x), -torch.inf).softmax(1)
        for name in ("model", "download")
    ]
    expected = 0.7 * shares[0] + 0.3 * shares[1]
    found = answers(world, method, personal, x).exp()
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    assert (found[:, ~kept] == 0).all()


def test_with_opinion_one_no_local_training_has_any_influence(world: World) -> None:
    method = own(opinion=1.0)
    personal = world.play(method)[-1].personal[1]
    x = world.federation.test_x
    other = personal | {"model": torch.randn(personal["model"].shape)}
    found = answers(world, method, personal, x).argmax(1)
    assert torch.equal(found, answers(world, method, other, x).argmax(1))
    download = world.logits(personal["download"], x).masked_fill(~personal["own"], -torch.inf)
    assert torch.equal(found, download.argmax(1))


@pytest.mark.parametrize("opinion", [0.0, 1.0])
def test_own_answers_are_never_worse_on_samples_of_observed_classes(
    world: World, opinion: float
) -> None:
    among_own, among_all = own(opinion=opinion), own(opinion=opinion, own=False)
    everywhere = world.play(among_own)[-1].personal
    x, y = world.federation.test_x, world.federation.test_y
    better = 0
    for k, personal in everywhere.items():
        seen = world.federation.observed[k][y]
        right, usual = (
            answers(world, method, given, x).argmax(1) == y
            for method, given in (
                (among_own, personal),
                (among_all, {k: v for k, v in personal.items() if k != "own"}),
            )
        )
        assert not bool((usual & ~right)[seen].any())
        better += int((right & ~usual).sum())
    assert better > 0


@pytest.mark.parametrize("opinion", [0.0, 0.5, 1.0])
def test_for_a_client_with_all_classes_own_has_no_effect(world: World, opinion: float) -> None:
    method = own(opinion=opinion)
    personal = world.play(method)[-1].personal[1]
    every = personal | {"own": torch.ones_like(personal["own"])}
    x, without = world.federation.test_x, {k: v for k, v in personal.items() if k != "own"}
    plain = answers(world, own(opinion=opinion, own=False), without, x)
    assert torch.equal(answers(world, method, every, x), plain)


def test_at_the_end_the_download_is_the_final_global_model(world: World) -> None:
    method = own()
    last = world.play(method)[-1]
    down = method.download(last.server)
    kept = present(method.kept_personal(world.client(1, 3), down, last.states[1]))
    assert torch.equal(kept["download"], last.server["model"])
    assert torch.equal(kept["model"], last.states[1]["hpm"])
    assert torch.equal(kept["own"], world.federation.observed[1])
