"""Samples that clients keep for choosing: which they are, and what is made of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import fedmap
from fedmap.data import synthetic
from fedmap.errors import FedmapError
from fedmap.federation import Federation
from fedmap.methods import METHODS
from fedmap.methods.fedavg import FedAvg
from fedmap.simulate import Result, Settings
from fedmap.simulate.tasks import Setup

SMALL: dict[str, Any] = {
    "net": "tiny", "rounds": 6, "fraction": 0.5, "epochs": 1, "batch": 8, "lr": 0.3,
    "validation": 0.3,
}  # fmt: skip


def measured(result: Result) -> list[dict[str, Any]]:
    return [record | {"seconds": 0} for record in result.rounds]


def files(folder: Path) -> dict[str, bytes]:
    found = [*folder.glob("*.safetensors"), *folder.glob("personal/*"), folder / "final.json"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in found}


@given(share=st.floats(0.01, 0.99), seed=st.integers(0, 3), client=st.integers(0, 5))
def test_a_client_trains_on_what_it_does_not_keep_for_choosing(
    federation: Federation, share: float, seed: int, client: int
) -> None:
    whole = federation.client(client)
    parted = whole.with_validation(share, seed)
    assert parted.validation is not None
    rows = sorted(x.tolist() for x in (*parted.train[0], *parted.validation[0]))
    assert rows == sorted(x.tolist() for x in whole.train[0])
    n = len(whole.train[1])
    assert len(parted.validation[1]) == min(max(int(share * n + 1e-9), 1), n - 1)
    assert parted.counts.tolist() == torch.bincount(parted.train[1], minlength=4).tolist()
    assert parted.observed.tolist() == [count > 0 for count in parted.counts.tolist()]
    again = whole.with_validation(share, seed)
    assert torch.equal(parted.train[0], again.train[0])
    assert all(torch.equal(a, b) for a, b in zip(parted.test, whole.test, strict=True))


def test_a_clients_only_training_sample_is_trained_on() -> None:
    x, y = np.eye(2, 6, dtype=np.float32), np.array([0, 1])
    one = Federation.from_arrays([(x, y), (x, y)]).client(0)
    assert one.with_validation(0.5, 0) is one


def test_a_class_is_observed_from_as_many_samples_as_before(federation: Federation) -> None:
    stricter = replace(federation.client(0), observed_from=10**6).with_validation(0.1, 0)
    assert not stricter.observed.any()


def test_the_scores_of_a_round_are_those_of_its_models(federation: Federation) -> None:
    result = fedmap.run("fedavg", federation, **SMALL | {"rounds": 1, "fraction": 1})
    setup = Setup(result.settings, federation)
    parts = [setup.data(k).validation for k in range(len(federation))]
    x, y = (torch.cat([part[i] for part in parts if part]) for i in (0, 1))
    assert result.global_model is not None
    right = result.global_model(setup.data(0).normalize(x)).argmax(1) == y
    assert result.final["global_accuracy_validation"] == int(right.sum()) / len(y)


def test_personal_scores_are_means_over_the_rounds_clients(federation: Federation) -> None:
    """A client's kept model is the personal model of its last round."""
    result = fedmap.run("local", federation, **SMALL | {"rounds": 1, "fraction": 1})
    setup, own = Setup(result.settings, federation), []
    for k in range(len(federation)):
        data = setup.data(k)
        assert data.validation is not None
        x, y = data.validation
        right = result.personal_model(k)(data.normalize(x)).argmax(1) == y
        own.append(int(right.sum()) / len(y))
    assert result.final["personal_accuracy_validation"] == pytest.approx(sum(own) / len(own))


@pytest.fixture(scope="module")
def early(federation: Federation) -> tuple[Result, int]:
    """A run whose best round is not its last, and that round."""
    for seed in range(20):
        result = fedmap.run("fedavg", federation, **SMALL | {"seed": seed})
        if 1 < result.final["best_round"] < 6:
            return result, seed
    raise AssertionError("no seed has its best round in the middle")


def test_the_models_are_those_of_the_best_round(
    early: tuple[Result, int], federation: Federation
) -> None:
    whole, seed = early
    best = whole.final["best_round"]
    short = fedmap.run("fedavg", federation, **SMALL | {"seed": seed, "rounds": best})
    assert short.final["best_round"] == best
    for name in ("global.safetensors", "server.safetensors"):
        assert (whole.folder / name).read_bytes() == (short.folder / name).read_bytes()
    record = whole.rounds[best - 1]
    assert whole.global_accuracy == whole.final["global_accuracy"] == record["global_accuracy"]
    x, y = federation.dataset.test_x, federation.dataset.test_y
    assert whole.global_model is not None
    right = whole.global_model(federation.dataset.normalize(x)).argmax(1) == y
    assert whole.global_accuracy == int(right.sum()) / len(y)


def test_patience_ends_a_run_early_with_the_same_models(
    early: tuple[Result, int], federation: Federation
) -> None:
    whole, seed = early
    best = whole.final["best_round"]
    short = fedmap.run("fedavg", federation, **SMALL | {"seed": seed, "patience": 6 - best})
    assert short.final["best_round"] == best
    assert measured(short) == measured(whole)[: len(short.rounds)]
    one = fedmap.run("fedavg", federation, **SMALL | {"seed": seed, "patience": 1})
    assert len(one.rounds) == one.final["best_round"] + 1


def test_test_samples_are_never_asked_to_choose(federation: Federation) -> None:
    """With other test labels every test accuracy is another, and the models are the same."""
    first = fedmap.run("fedavg", federation, **SMALL)
    wrong = partition_with_wrong_tests()
    other = fedmap.run("fedavg", wrong, **SMALL)
    assert first.global_accuracy != other.global_accuracy
    assert first.final["best_round"] == other.final["best_round"]
    ours, others = ((r.folder / "global.safetensors").read_bytes() for r in (first, other))
    assert ours == others


def partition_with_wrong_tests() -> Federation:
    """The federation of the fixture, with wrong labels in all test sets."""
    dataset = synthetic(classes=4, train=240, test=80, shape=(6,))
    wrong = fedmap.partition(dataset, 6, seed=1)
    wrong.test_y = (wrong.test_y + 1) % 4
    tested = torch.cat(wrong.test)
    wrong.dataset.train_y[tested] = (wrong.dataset.train_y[tested] + 1) % 4
    return wrong


class StopError(Exception):
    pass


@pytest.mark.parametrize("method", ["map", "central"])
def test_stopped_anywhere_or_with_two_workers_the_bytes_are_the_same(
    method: str, images: Federation, tmp_path: Path
) -> None:
    small = SMALL | {"net": "tiny-bn", "rounds": 4, "patience": 2}
    one = fedmap.run(method, images, out=tmp_path / "one", **small)
    fedmap.run(method, images, out=tmp_path / "two", workers=2, **small)
    assert files(tmp_path / "one") == files(tmp_path / "two")

    def stop(record: dict[str, Any]) -> None:
        raise StopError

    for _ in one.rounds:
        with pytest.raises(StopError):
            fedmap.run(
                method, images, out=tmp_path / "stopped", resume=True, on_round=stop, **small
            )
    again = fedmap.run(method, images, out=tmp_path / "stopped", resume=True, **small)
    assert measured(again) == measured(one)
    assert files(tmp_path / "one") == files(tmp_path / "stopped")


def test_a_damaged_state_of_the_best_round_is_refused(
    federation: Federation, tmp_path: Path
) -> None:
    def stop(record: dict[str, Any]) -> None:
        raise StopError

    with pytest.raises(StopError):
        fedmap.run("fedavg", federation, out=tmp_path, on_round=stop, **SMALL)
    (kept,) = (tmp_path / "checkpoint").glob("best-1-*.safetensors")
    kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    with pytest.raises(FedmapError, match=r"the state of the best round, 1, is .* damaged"):
        fedmap.run("fedavg", federation, out=tmp_path, resume=True, **SMALL)


def test_more_rounds_go_on_from_the_last_round_and_not_from_the_best(
    early: tuple[Result, int], federation: Federation, tmp_path: Path
) -> None:
    whole, seed = early
    given = SMALL | {"seed": seed, "out": tmp_path, "keep_states": True}
    fedmap.run("fedavg", federation, **given | {"rounds": whole.final["best_round"] + 1})
    later = fedmap.run("fedavg", federation, resume=True, **given)
    assert measured(later) == measured(whole)
    assert files(later.folder) == files(whole.folder)


def test_without_kept_states_there_are_no_more_rounds(
    federation: Federation, tmp_path: Path
) -> None:
    fedmap.run("fedavg", federation, out=tmp_path, **SMALL | {"rounds": 1})
    with pytest.raises(FedmapError, match="it cannot go on"):
        fedmap.run("fedavg", federation, out=tmp_path, resume=True, **SMALL)


def test_a_share_of_zero_is_none() -> None:
    plain, zero = Settings.of({"data": "synthetic"}), Settings.of({"validation": 0.0})
    assert zero.validation is None
    assert plain.name == Settings.of({"data": "synthetic", "validation": 0}).name


def test_patience_without_samples_to_choose_by_is_refused() -> None:
    with pytest.raises(FedmapError, match="patience is 3, but no samples are kept for choosing"):
        Settings.of({"patience": 3})


def test_without_it_no_record_speaks_of_it(federation: Federation) -> None:
    record = fedmap.run("fedavg", federation, **SMALL | {"validation": 0, "rounds": 1}).rounds[0]
    assert not any("validation" in name for name in record)


def test_clients_that_train_are_told_what_is_left(federation: Federation) -> None:
    seen: dict[int, list[int]] = {}

    class Looking(FedAvg):
        def local_round(self, client: Any, down: Any, state: Any) -> Any:
            seen[client.number] = client.counts.tolist()
            return super().local_round(client, down, state)

    with METHODS.lent("looking", Looking):
        result = fedmap.run("looking", federation, **SMALL | {"rounds": 1, "fraction": 1})
        setup = Setup(result.settings, federation)
    assert seen == {k: setup.data(k).counts.tolist() for k in range(len(federation))}
    assert seen != {k: federation.client(k).counts.tolist() for k in range(len(federation))}
