"""Differential privacy: what a client sends is bounded and noisy, and epsilon is as it must be."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fedmap
from fedmap import values
from fedmap.errors import DivergenceError, FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS
from fedmap.simulate.privacy import epsilon, private
from fedmap.simulate.settings import Settings
from fedmap.simulate.tasks import Setup, do
from fedmap.values import Values

SMALL: dict[str, Any] = {"net": "tiny", "rounds": 2, "epochs": 0.5, "fraction": 0.5, "batch": 16}
PRIVATE = SMALL | {"dp_clip": 0.5, "dp_noise": 1.0}
COVERED = [
    name
    for name, method in ((name, METHODS[name]) for name in sorted(METHODS))
    if not method.not_averaged and not method.sends.keys() - set(method.trained)
]
ENTRY = arrays(np.float32, 5, elements=st.floats(-1000, 1000, width=32))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@given(ENTRY, ENTRY, ENTRY, st.floats(0.01, 100))
@settings(max_examples=100)
def test_what_is_sent_is_never_further_from_the_download_than_the_clip(
    a: Any, b: Any, start: Any, clip: float
) -> None:
    down = {"a": torch.from_numpy(start), "b": torch.zeros(5)}
    up = private({"a": torch.from_numpy(a), "b": torch.from_numpy(b)}, down, clip, 0.0, rng())
    way = math.hypot(*(float((up[name].double() - down[name]).norm()) for name in up))
    assert way <= clip * (1 + 1e-5) + 1e-3 * np.abs(start).max() / 1000  # float32 at `start`


@pytest.mark.parametrize("far", [float("inf"), float("nan"), 1e30])
def test_a_change_that_cannot_be_shortened_does_not_leave_the_client(far: float) -> None:
    down = {"model": torch.zeros(4)}
    with pytest.raises(DivergenceError, match="does not leave the client"):
        private({"model": torch.full((4,), far)}, down, 1.0, 0.0, np.random.default_rng(0))


def test_a_short_change_is_sent_as_it_is() -> None:
    up = private({"m": torch.tensor([1.5, 0.0])}, {"m": torch.tensor([1.0, 0.0])}, 0.6, 0.0, rng())
    assert up["m"].tolist() == [1.5, 0.0]


def test_the_noise_is_gaussian_with_the_deviation_asked_for() -> None:
    down = {"model": torch.zeros(40_000)}
    noise = private(down, down, 1.0, 0.25, rng())["model"].double()
    assert float(noise.mean()) == pytest.approx(0, abs=0.005)
    assert float(noise.std()) == pytest.approx(0.25, rel=0.02)
    within = [float((noise.abs() < 0.25 * k).double().mean()) for k in (1, 2, 3)]
    assert within == pytest.approx([math.erf(k / 2**0.5) for k in (1, 2, 3)], abs=0.01)


def uploads(federation: Federation, round: int = 1, seed: int = 0, **more: Any) -> list[Values]:
    """What the first three clients send."""
    given = SMALL | {"data": "synthetic", "method": "fedavg", "seed": seed} | more
    run = Setup(Settings.of(given), federation)
    down = run.method.download(run.method.start(run.initial))
    state = run.method.client_state(run.initial)
    with run.in_force():
        return [dict(do(run, "train", round, number, down, state).up) for number in range(3)]


def test_each_client_and_round_has_its_own_noise_and_the_sum_has_the_runs(
    federation: Federation,
) -> None:
    """With a large deviation the noise is all there is: a round's m = 3 parts of z C / sqrt(m)."""
    noisy: dict[str, Any] = {"dp_clip": 1e-6, "dp_noise": 1e9}
    drawn = [u["model"] for r in (1, 2) for u in uploads(federation, r, **noisy)]
    together = np.corrcoef(torch.stack(drawn).numpy()) - np.eye(6)
    assert np.abs(together).max() < 0.5
    assert float(torch.stack(drawn).std()) == pytest.approx(1000 / 3**0.5, rel=0.15)
    again = uploads(federation, **noisy)[0]["model"]
    assert torch.equal(again, drawn[0])
    assert not torch.equal(uploads(federation, seed=1, **noisy)[0]["model"], drawn[0])


def test_epsilon_without_draws_is_that_of_the_gaussian_mechanism() -> None:
    """Rényi: T alpha / (2 s^2) with s = z / 2, and the conversion of Canonne, Kamath and Steinke
    (2020), Proposition 12, over a fine grid of orders."""
    z, rounds, delta = 20.0, 30, 1e-5
    orders = np.linspace(1.1, 60, 20_000)
    curve = rounds * orders / (2 * (z / 2) ** 2)
    bound = curve + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    found = epsilon(z, delta, 10, 10, [10] * rounds, drawn=True)
    assert found == pytest.approx(float(bound.min()), rel=0.01)


def test_epsilon_is_little_above_the_exact_one_of_the_gaussian_mechanism() -> None:
    """Balle and Wang, ICML 2018, Theorem 8, for one mechanism with the deviation of 30 rounds."""
    z, rounds, delta = 20.0, 30, 1e-5
    s = z / 2 / rounds**0.5

    def phi(t: float) -> float:
        return math.erfc(-t / 2**0.5) / 2

    def loss(e: float) -> float:
        return phi(1 / (2 * s) - e * s) - math.exp(e) * phi(-1 / (2 * s) - e * s)

    found = epsilon(z, delta, 10, 10, [10] * rounds, drawn=True)
    assert loss(found) <= delta
    assert loss(0.9 * found) > delta


def test_epsilon_with_draws_is_below_the_published_bound_and_near_it() -> None:
    """Wang, Balle and Kasiviswanathan, AISTATS 2019, Theorem 9, which holds for any mechanism; the
    accountant's is theirs for the Gaussian one."""
    q, s, rounds, delta = 0.05, 2.0, 100, 1e-5

    def curve(order: int) -> float:
        def gauss(a: int) -> float:
            return a / (2 * s**2)

        two = min(4 * math.expm1(gauss(2)), 2 * math.exp(gauss(2)))
        total = 1 + q**2 * math.comb(order, 2) * two
        for j in range(3, order + 1):
            total += q**j * math.comb(order, j) * 2 * math.exp((j - 1) * gauss(j))
        return math.log(total) / (order - 1)

    bounds = [
        rounds * curve(a) + math.log1p(-1 / a) - math.log(delta * a) / (a - 1) for a in range(2, 30)
    ]
    found = epsilon(2 * s, delta, 1000, 50, [50] * rounds, drawn=True)
    assert 0.85 * min(bounds) < found <= min(bounds) * (1 + 1e-9)


def test_the_accountant_has_the_published_number_of_the_moments_accountant() -> None:
    """Abadi et al., CCS 2016, Fig. 2: q = 0.01, sigma = 4, 10,000 steps, delta 1e-5 give 1.26."""
    import dp_accounting as dp
    from dp_accounting import rdp

    accountant = rdp.RdpAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(0.01, dp.GaussianDpEvent(4.0)), 10_000)
    orders, curve = accountant.orders, accountant.rdp
    # the conversion of their time
    assert min(curve - math.log(1e-5) / (orders - 1)) == pytest.approx(1.26, abs=0.005)


def test_parts_of_the_noise_that_did_not_arrive_are_counted() -> None:
    whole = epsilon(4.0, 1e-5, 10, 10, [10], drawn=True)
    some = epsilon(4.0, 1e-5, 10, 10, [4], drawn=True)
    assert some > whole
    assert some == epsilon(4.0 * 0.4**0.5, 1e-5, 10, 10, [10], drawn=True)


def test_draws_count_only_where_they_are_secret() -> None:
    secret, known = (epsilon(4.0, 1e-5, 100, 10, [10] * 5, drawn) for drawn in (True, False))
    assert secret < known == epsilon(4.0, 1e-5, 10, 10, [10] * 5, drawn=True)


def test_epsilon_is_in_every_record_and_grows(federation: Federation) -> None:
    result = fedmap.run("fedavg", federation, **PRIVATE)
    found = [record["epsilon"] for record in result.rounds]
    clients, drawn = len(federation), len(federation) // 2
    assert found == [epsilon(1.0, 1e-5, clients, drawn, [drawn] * n, True) for n in (1, 2)]
    assert found[0] < found[1]


def test_without_it_no_record_has_an_epsilon(federation: Federation) -> None:
    result = fedmap.run("fedavg", federation, **SMALL)
    assert "epsilon" not in result.rounds[0]


def test_workers_and_a_resume_give_the_same_bits(federation: Federation, tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(record: Any) -> None:
        raise StopError

    one = fedmap.run("map", federation, **PRIVATE)
    two = fedmap.run("map", federation, **PRIVATE, workers=2)
    with pytest.raises(StopError):
        fedmap.run("map", federation, **PRIVATE, out=tmp_path / "run", on_round=stop)
    three = fedmap.run("map", federation, **PRIVATE, out=tmp_path / "run", resume=True)
    for other in (two, three):
        assert [{**r, "seconds": 0} for r in other.rounds] == [
            {**r, "seconds": 0} for r in one.rounds
        ]
        models = [values.load(r.folder / "global.safetensors") for r in (one, other)]
        assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


@pytest.mark.parametrize("method", COVERED)
def test_a_methods_upload_is_bounded(method: str, federation: Federation) -> None:
    run = Setup(Settings.of(SMALL | {"data": "synthetic", "method": method}), federation)
    down = run.method.download(run.method.start(run.initial))
    for up in uploads(federation, method=method, dp_clip=0.01):
        way = math.hypot(*(float((up[name] - down[name]).norm()) for name in up))
        assert way == pytest.approx(0.01, rel=1e-3)  # training goes further than that


@pytest.mark.parametrize("method", sorted({*METHODS} - {*COVERED}))
def test_a_method_with_other_uploads_is_refused_with_what_is_not_covered(
    method: str, federation: Federation
) -> None:
    with pytest.raises(FedmapError, match=f"method {method}: dp_clip is given, but .*(cover|fit)"):
        uploads(federation, method=method, dp_clip=1.0)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"dp_clip": None}, "dp_noise is in units of dp_clip"),
        ({"server_weights": "samples"}, "server_weights is 'samples': .* only 'uniform'"),
        ({"aggregate": "median"}, "aggregate is 'median': .* only 'mean'"),
        ({"net": "tiny-bn"}, "net tiny-bn has statistics of batch norm"),
    ],
)
def test_what_would_make_epsilon_untrue_is_refused(
    more: dict[str, Any], sentence: str, federation: Federation
) -> None:
    with pytest.raises(FedmapError, match=sentence):
        fedmap.run("fedavg", federation, **PRIVATE | more)


def test_a_missing_accountant_is_said(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting.rdp", None)
    with pytest.raises(FedmapError, match=r"pip install 'fedmap\[dp\]'"):
        fedmap.run("fedavg", federation, **PRIVATE)
