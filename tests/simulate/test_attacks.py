"""Attackers: who they are, what they do, and that a robust average withstands them."""

from typing import Any

import numpy as np
import pytest
import torch

import fedmap
from fedmap.data.synthetic import synthetic
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS, Local, Method, Server, Upload
from fedmap.simulate.attacks import attackers, spoiled, with_flipped_labels
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup, do
from fedmap.values import Values

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 1, "epochs": 0.2, "fraction": 1.0, "batch": 16}


@pytest.fixture(scope="module")
def federation() -> Federation:
    return fedmap.partition(synthetic(classes=10, train=400, test=80, shape=(6,)), 10, seed=0)


def setup(federation: Federation, **more: Any) -> Setup:
    given = SMALL | {"data": "synthetic", "method": "fedavg"} | more
    return Setup(Settings.of(given), federation)


def uploaded(federation: Federation, number: int, **more: Any) -> Values:
    run = setup(federation, **more)
    down = run.method.download(run.method.start(run.initial))
    with run.in_force():
        return dict(do(run, "train", 1, number, down, {}).up)


def test_as_many_clients_attack_as_the_share_says_and_the_seed_draws_them() -> None:
    assert [len(attackers(0, share, 20)) for share in (0.0, 0.1, 0.3)] == [0, 2, 6]
    assert attackers(0, 0.3, 20) == attackers(0, 0.3, 20) != attackers(1, 0.3, 20)
    assert attackers(0, 0.1, 20) < attackers(0, 0.3, 20)  # more join those that there are


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"attack": "signs"}, "attack is 'signs', but attackers is 0; give both"),
        ({"attackers": 0.5}, r"attack is 'none', but attackers is 0\.5; give both"),
        ({"attack": "signs", "attackers": 0.04}, r"attackers is 0\.04, which of 10 clients is nob"),
    ],
)
def test_an_attack_of_nobody_is_refused(
    given: dict[str, Any], says: str, federation: Federation
) -> None:
    with pytest.raises(FedmapError, match=says):
        setup(federation, **given)


def test_flipped_labels_are_mirrored_with_their_counts(federation: Federation) -> None:
    data = federation.client(0)
    flipped = with_flipped_labels(data, 10)
    assert torch.equal(flipped.train[1], 9 - data.train[1])
    assert torch.equal(flipped.counts, torch.bincount(flipped.train[1], minlength=10))
    assert torch.equal(flipped.observed, flipped.counts > 0)
    assert flipped.test is data.test


def test_a_flipped_sign_mirrors_the_upload_at_the_download() -> None:
    up = {"model": torch.tensor([3.0, 1.0]), "control": torch.tensor([2.0]), "n": torch.tensor(5)}
    found = spoiled("signs", up, {"model": torch.tensor([1.0, 1.0])}, np.random.default_rng(0))
    assert {name: value.tolist() for name, value in found.items()} == {
        "model": [-1.0, 1.0],
        "control": [-2.0],
        "n": 5,
    }


def test_noise_is_as_long_as_the_way_of_the_upload() -> None:
    up, down = {"model": torch.full((10_000,), 3.0)}, {"model": torch.full((10_000,), 1.0)}
    way = spoiled("noise", up, down, np.random.default_rng(0))["model"] - 1
    assert float(way.norm()) == pytest.approx(200, rel=0.05)
    assert abs(float(way.mean())) < 0.1


@pytest.mark.parametrize("attack", ["labels", "signs", "noise"])
def test_only_attackers_upload_something_else(attack: str, federation: Federation) -> None:
    bad = attackers(0, 0.3, 10)
    for number in (min(bad), min(set(range(10)) - bad)):
        honest = uploaded(federation, number)["model"]
        found = uploaded(federation, number, attack=attack, attackers=0.3)["model"]
        assert torch.equal(honest, found) == (number not in bad)


@pytest.mark.parametrize("method", [m for m in sorted(METHODS) if not METHODS[m].not_averaged])
def test_a_method_takes_the_average_that_the_run_has_chosen(
    method: str, federation: Federation
) -> None:
    """Where all uploads are the same, every average is the mean."""
    for kind in ("mean", "median"):
        run = setup(federation, method=method, aggregate=kind, net="mlp")
        state = run.method.start(run.initial)
        reply = do(run, "train", 1, 0, run.method.download(state), client_state(run))
        uploads = [Upload(k, 1 / 4, reply.up) for k in range(4)]
        server = run.server(1)
        found = run.method.aggregate(server, state, uploads)
        assert server.averaged
        if kind == "mean":
            plain = found
    assert all(torch.allclose(found[name], plain[name], atol=1e-5) for name in plain)


def client_state(run: Setup) -> Values:
    return run.method.client_state(run.initial)


@pytest.mark.parametrize("method", ["scaffold", "feddyn"])
def test_one_bad_upload_of_five_does_not_reach_what_the_server_keeps(
    method: str, federation: Federation
) -> None:
    run = setup(federation, method=method, aggregate="median")
    state = run.method.start(run.initial)
    reply = do(run, "train", 1, 0, run.method.download(state), client_state(run))
    bad = {name: value + 1e6 for name, value in reply.up.items()}
    uploads = [Upload(k, 1 / 5, bad if k == 2 else reply.up) for k in range(5)]
    found = run.method.aggregate(run.server(1), state, uploads)
    assert all(float(value.abs().max()) < 1000 for value in found.values())


@pytest.mark.parametrize("method", [m for m in sorted(METHODS) if METHODS[m].not_averaged])
def test_a_method_that_uses_single_uploads_takes_no_other_average(
    method: str, federation: Federation
) -> None:
    with pytest.raises(FedmapError, match=f"method {method}: aggregate is 'median', but .*only"):
        setup(federation, method=method, aggregate="median")


def test_a_robust_average_takes_no_weights_that_clients_choose(federation: Federation) -> None:
    with pytest.raises(FedmapError, match="'median' and server_weights 'samples': a client says"):
        setup(federation, aggregate="median", server_weights="samples")


def test_a_round_too_small_for_its_average_is_refused_before_it_begins(
    federation: Federation,
) -> None:
    with pytest.raises(FedmapError, match="'krum' with 1 bad of 2 uploads in a round needs at"):
        setup(federation, aggregate="krum", fraction=0.2)


def test_a_method_that_never_asks_for_an_average_is_told_so(federation: Federation) -> None:
    class TakesTheFirst(Method):
        def aggregate(self, server: Server, state: Values, uploads: Any) -> Values:
            return {"model": uploads[0].up["model"].clone()}

    with (
        METHODS.lent("takesthefirst", TakesTheFirst),
        pytest.raises(FedmapError, match="takesthefirst: aggregate is 'median', but its"),
    ):
        fedmap.run("takesthefirst", federation, **SMALL, aggregate="median")


def test_noise_from_a_third_of_the_clients_moves_the_mean_further_than_the_median(
    federation: Federation,
) -> None:
    class Jumps(Method):
        """What honest clients upload is where they began."""

        def local_round(self, client: Any, down: Values, state: Values) -> Local:
            local = super().local_round(client, down, state)
            bad = client.number in attackers(0, 0.3, 10)
            return local._replace(up={"model": down["model"] + 0.01 * bad})

    with METHODS.lent("jumps", Jumps):
        moved = {}
        for kind in ("mean", "median"):
            run = fedmap.run("jumps", federation, **SMALL, aggregate=kind)
            start = Setup(run.settings, federation, Jumps()).initial.vector
            state = fedmap.values.load(run.folder / "server.safetensors")["model"]
            moved[kind] = float((state - start).abs().max())
    assert moved["mean"] == pytest.approx(0.003, rel=1e-3)
    assert moved["median"] == 0


def test_attackers_and_rules_give_the_same_bits_with_two_workers(federation: Federation) -> None:
    given = SMALL | {"attack": "noise", "attackers": 0.3, "aggregate": "clipped"}
    one, two = (fedmap.run("map", federation, **given, workers=w) for w in (1, 2))
    models = [fedmap.values.load(r.folder / "global.safetensors") for r in (one, two)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
